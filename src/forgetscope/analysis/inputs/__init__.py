"""What a store holds, as an analysis takes it.

`measured_steps` reads each step once, `samples` groups steps into samples, `associations` are the correlations that each step
is asked for, `recognised` compares test images with when their class was learned, `training_shares` says when in training
something is known, `class_pairs` sets the classes of two steps side by side, and `cache` keeps what was computed before.
"""
