"""What acts on predictions alone once a step is trained: scales and offsets of its logits. The next step trains without them.

Arrays in, arrays out. `adjustment`: what all of them come to; `published`: a constant, weight aligning and bias correction;
`evening`: offsets under which past classes would be forgotten alike, as far as keepsakes tell; `held_out`: as far as images
tell that training has never seen; `own`: evening for anybody's network. Nothing here sees a test image.
"""
