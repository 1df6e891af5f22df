"""Pages as they are read: what is generated in its place, and links that hold in the repository made to hold on the site."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from generating import commands, files, names, options, trouble, words

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs"
# Files outside docs/ that the site has as pages.
ADOPTED = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
PLACE = re.compile(r"<!-- generated: (\w+)(?: (\S+))? -->")
_FENCED = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)  # code, in which nothing is a link
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|<)([^)#\s]+)(#[^)\s]*)?(?=\))")


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Of `source-read`: the one string in source is the page."""
    source[0] = completed(source[0], SITE / f"{docname}.md")


def completed(text: str, page: Path) -> str:
    """The Markdown of a page as the site has it."""
    makers: dict[str, Callable[[str], str]] = {
        **{"commands": commands.commands, "options": options.options, "files": files.files, "words": words.words},
        **{"names": names.names, "errors": trouble.errors, "variables": trouble.variables},
        "file": lambda name: relinked((ROOT / name).read_text("utf-8"), ROOT / name, page),
    }
    return PLACE.sub(lambda place: makers[place[1]](place[2] or ""), relinked(text, page, page))


def relinked(text: str, written: Path, shown: Path) -> str:
    """The Markdown of one file with its links as they must be on a page of the site."""
    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(lambda link: _target(link[1], written, shown) + (link[2] or ""), part) for part in parts[::2]]
    return "".join(parts)


def _target(link: str, written: Path, shown: Path) -> str:
    meant = os.path.relpath(written.parent / link, ROOT)
    on_site = SITE / ADOPTED[meant] if meant in ADOPTED else ROOT / meant
    return Path(os.path.relpath(on_site, shown.parent)).as_posix()
