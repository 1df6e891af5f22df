"""Links that leave the site. Nothing fetches them, neither the build nor a page that is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LIST = "external-links.txt"  # in the folder of the site: an address and its page per line


def list_links(app: Sphinx, error: Exception | None) -> None:
    """Of `build-finished`."""
    if error is not None or app.builder.format != "html":
        return
    found = {
        f"{link['refuri']}\t{page}"
        for page in app.env.found_docs
        for link in app.env.get_doctree(page).findall(nodes.reference)
        if link.get("refuri", "").startswith(("http:", "https:"))
    }
    (Path(app.outdir) / LIST).write_text("".join(f"{line}\n" for line in sorted(found)), encoding="utf-8")
