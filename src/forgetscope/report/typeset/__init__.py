"""For print: `papers` writes a PDF, a LaTeX folder or figures.

`layout` lays the paper's tables out as lines of cells, which `latex` and `sheets` (pages without LaTeX) write; `figures` draws,
with `swarm` for beeswarms and `ink` for how everything looks.
"""
