"""For print: `papers` writes a PDF, a LaTeX folder or figures.

`layout` lays the paper's tables out as lines of cells, which `latex` and `sheets` (pages without LaTeX) write; `figures` draws,
and `ink` is how everything looks.
"""
