"""What the site has beyond its Markdown files, made anew whenever it is built: `make docs`.

A line such as `<!-- generated: commands -->` in a page is replaced by Markdown that is made from the code, and so cannot drift;
on a code host it is invisible. `pages` does that, and has links mean on the site what they mean in the repository. The
Markdown is made by `commands`, `options`, `files`, `names`, `words` and `trouble` (exit codes, errors, variables), all of which
write it as `marking` does. `mathematics` writes formulas as MathML; `outside` lists links that leave the site, which nothing
follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from generating import mathematics, outside, pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", pages.complete)
    app.connect("build-finished", outside.list_links)
    app.add_html_math_renderer("native", (mathematics.inline, None), (mathematics.displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
