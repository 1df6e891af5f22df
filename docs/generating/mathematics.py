"""Formulas as MathML, which browsers draw by themselves: no script, no fonts, no request."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def inline(writer: Any, node: nodes.math) -> None:
    """Of Sphinx's HTML writer."""
    writer.body.append(_markup(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{_markup(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def _markup(formula: str, **options: bool) -> str:
    """Brackets and bars as high as they are: LaTeX stretches none without being told, MathML each."""
    return re.sub(r"<mo( class=\"\w+\")?>([‖⟨⟩])", r'<mo\1 stretchy="false">\2', tex2mathml(formula, **options))
