"""Words: `sentences` that several writers share, `explained` (how to read each table and figure), `methods` for a paper,
`quantities` and `estimates` as text.
"""
