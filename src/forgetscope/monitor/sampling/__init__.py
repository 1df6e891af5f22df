"""Probes that look at some images, and not after every epoch.

`probing` says how many images and when; `sampled` which images these are, and measures on them as on all.
"""
