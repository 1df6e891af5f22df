"""Images: how they get here, and how they are opened.

`library` opens data sets and knows their facts, `acquisition` brings them: `download`, `readers` of archives and folders
(`sources`, `decoding`, `limits`), `conversion` into arrays in the `cache`, of which `ownership` says what is ours. `images` is
an opened data set, `glyphs` the embedded one, `known` the public ones, `augmentation` what suits each, `preprocessing`
from images to what a network gets.
"""
