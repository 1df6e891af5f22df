"""Views for a terminal, all of them made of `tables`.

`experiments` and stores, `plans`, `storage`, and a module for each study.
"""
