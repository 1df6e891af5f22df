"""Readers: from the forms in which people have a data set on disk to a `Source`. They decode and write nothing."""
