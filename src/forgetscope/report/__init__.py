"""What a person gets to see. Nothing is estimated here.

`words` has sentences, quantities and captions; `terminal` views, `pages` the HTML files, `typeset` LaTeX, PDF and
figures for print; `document` is JSON and `results` an analysis as files.
"""
