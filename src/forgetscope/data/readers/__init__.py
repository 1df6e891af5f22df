"""Readers: from the forms in which people have a data set on disk to a `Source`. They decode and write nothing.

`folders` of images, `arrays` (npz), `parquet`, and the official `cifar100` and `tiny_imagenet`, with `archives` and `pickles`
as safe ways into those.
"""
