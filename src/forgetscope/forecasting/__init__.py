"""Forgetting predicted without past images: from what was kept of a class's features, the memory and the new images.

Arrays in, arrays out. `accuracy`: how well a class was known when it was learned, from its training images; `translation`: how
features have moved since; `forecaster`: what that means for each class, with an error; `stand_ins`: what it means for
the coefficients. Nothing here sees a test image.

Then for any network: `choice`, a fixed one of images, `features` of them, `kept`, what is made of these when classes were
learned, `recognition`, by which their network is known, `predictor`, forecasts from images that are held, and `forecast`, all
of it for anybody's loop; `written`: offsets in a head, under which none of it is made.
"""
