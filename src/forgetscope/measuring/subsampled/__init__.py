"""A probe that looks at some images of each class: which ones, and what they say of all.

`quotas` says how many of each class, rehearsed ones and others apart, and `drawing` takes them; `estimates` makes of their
gradients what an exact probe would find, without the bias that the same images in both factors of a product cause.
"""
