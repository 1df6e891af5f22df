"""What a person gets to see. Nothing is estimated here.

`exhibited` has the tables and figures of an analysis (the catalogue is `analysis.exhibits`), which all writers go through:
`pages` (HTML), `typeset` (LaTeX, PDF and figures for print), `terminal`, `datafiles` (CSV and Parquet) and `document` (JSON).
`words` is everything that is said, and how numbers are written; `underway` what is said of steps that still run.
"""
