"""The public Python names with their signatures and docstrings, and the contracts of `forgetscope.testing`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from forgetscope import integrations
from generating.marking import prose

HOOKS = ("avalanche", "lightning", "huggingface", "mammoth", "pycil")  # of frameworks, which need not be installed to be read


def names(which: str) -> str:
    """which: public, of the package; testing; or integrations, read from their source."""
    import forgetscope as fs

    if which == "integrations":
        return "\n".join(line for hook in HOOKS for line in _hook(hook))
    module, prefix = (fs, "fs") if which == "public" else (fs.testing, "forgetscope.testing")
    return "\n".join(line for name, found in _public(module) for line in _named(f"{prefix}.{name}", found))


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in sorted(module.__all__, key=str.casefold):
        found = getattr(module, name)
        if not isinstance(found, ModuleType | str):
            yield name, found


def _named(name: str, found: Any) -> Iterator[str]:
    """A class with its methods, a function, or an alias of a type."""
    yield f"## {name}\n"
    if not inspect.isclass(found) and not inspect.isfunction(found):
        yield f"A type: `{_short(str(found))}`.\n"
        return
    if hasattr(found, "model_fields"):
        yield f"```python\n{name}(**options)\n```\n\nEvery option, with default and range: [options](options.md).\n"
    elif not (inspect.isclass(found) and issubclass(found, Exception)):
        yield _signature(name, found)
    yield _as_markdown(inspect.getdoc(found) or "")
    if inspect.isclass(found):
        for own, member in inspect.getmembers_static(found):
            if not own.startswith("_") and _is_ours(found, own) and (said := inspect.getdoc(getattr(found, own))):
                yield f"### {name}.{own}\n"
                if callable(getattr(found, own)):
                    yield _signature(own, getattr(found, own))
                elif isinstance(member, property) or hasattr(member, "attrname"):
                    yield f"A value{_returned(member)}.\n"
                yield _as_markdown(said)


def _is_ours(found: type, name: str) -> bool:
    """Defined by this class or by one of ours that it builds on, not by a library's, and no plain value."""
    home = next(one for one in found.__mro__ if name in vars(one))
    member = vars(home)[name]
    described = callable(member) or isinstance(member, property | classmethod | staticmethod) or hasattr(member, "attrname")
    return home.__module__.startswith("forgetscope") and described


def _returned(member: Any) -> str:
    of = getattr(member, "fget", None) or getattr(member, "func", None)
    said = inspect.signature(of).return_annotation if of else inspect.Signature.empty
    return "" if said is inspect.Signature.empty else f", `{_short(inspect.formatannotation(said))}`"


def _signature(name: str, found: Any) -> str:
    """As it is called, one argument a line where it is long."""
    signature = inspect.signature(found)
    shown = _short(str(signature))
    if len(name) + len(shown) > 80:
        arguments: list[str] = []
        for one in signature.parameters.values():
            if one.kind is one.KEYWORD_ONLY and "*" not in "".join(arguments):
                arguments.append("*")
            arguments.append(_short(str(one)))
        after = f" -> {_short(shown.rpartition(' -> ')[2])}" if " -> " in shown else ""
        shown = "(\n" + "".join(f"    {one},\n" for one in arguments) + f"){after}"
    return f"```python\n{name}{shown}\n```\n"


def _short(text: str) -> str:
    """Types and functions by their names alone, as they are written in code."""
    for pattern, plain in (
        (r"<(?:function|class) '?(?:\w+\.)*(\w+)'?(?: at 0x\w+)?>", r"\1"),
        (r"(?<![\w'\"/])(?:[a-z_]\w*\.)+(?=[A-Z])", ""),
        (r"(?<=: )'([^']*)'", r"\1"),
        (r"(?<=-> )'([^']*)'", r"\1"),
    ):
        text = re.sub(pattern, plain, text)
    return text


def _as_markdown(docstring: str) -> str:
    """Paragraphs, with examples and indented blocks as code."""
    blocks = re.split(r"\n\s*\n", docstring)
    made = []
    for block in blocks:
        if block.lstrip().startswith(">>>"):
            made.append(f"```pycon\n{block}\n```")
        elif block.startswith("    "):
            made.append(f"```python\n{inspect.cleandoc(block)}\n```")
        elif re.match(r"[-*] ", block):
            made.append("\n".join(f"- {prose(item)}" for item in re.split(r"^[-*] ", block, flags=re.MULTILINE)[1:]))
        else:
            made.append(prose(block))
    return "\n\n".join(made) + "\n"


def _hook(name: str) -> Iterator[str]:
    path = Path(integrations.__file__).parent / f"{name}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield f"## forgetscope.integrations.{name}\n"
    yield _as_markdown(ast.get_docstring(tree) or "")
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_") and ast.get_docstring(node):
            maker = (
                node
                if isinstance(node, ast.FunctionDef)
                else next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
            )
            yield f"### {node.name} ({name})\n"
            if maker is not None:
                yield f"```python\n{node.name}({ast.unparse(maker.args).removeprefix('self, ')})\n```\n"
            yield _as_markdown(ast.get_docstring(node) or "")
