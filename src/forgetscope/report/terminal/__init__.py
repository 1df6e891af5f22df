"""Views for a terminal, all of them made of `tables`.

`experiments` and stores, `exhibits` of an analysis, `plans`, `storage`, `studies`.
"""
