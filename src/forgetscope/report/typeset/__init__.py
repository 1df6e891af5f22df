"""For print: `papers` writes a PDF, a LaTeX folder or figures.

`layout` lays tables out as lines of cells, which `latex` (any other frame: `latex_frame`) and `typesetting` (pages without
LaTeX) write; `figures` draws, with `swarm` for beeswarms and `ink` for how everything looks.
"""
