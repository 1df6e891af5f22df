"""The public Python names with their signatures and docstrings, and the contracts of `forgetscope.testing`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from forgetscope import integrations
from generating.marking import prose

GIVEN = {  # what public names give and nobody makes by hand, with the modules that have them
    "Evened": "forgetscope.calibrating.own",
    "Estimate": "forgetscope.analysis.statistics.estimates",
    "Imported": "forgetscope.housekeeping.importing",
    "Leaderboard": "forgetscope.analysis.questions.leaderboard",
    "MonitoredStep": "forgetscope.monitor.step",
    "ObservedAnalysis": "forgetscope.analysis.observed",
    "Plan": "forgetscope.benchmark.plans",
    "Simulated": "forgetscope.benchmark.simulation",
}
HOOKS = ("avalanche", "lightning", "huggingface", "mammoth", "pycil")  # of frameworks, which need not be installed to be read


def names(which: str) -> str:
    """which: public, of the package; given, by those; testing; or integrations, read from their source."""
    import forgetscope as fs

    if which == "given":
        found = {name: getattr(import_module(home), name) for name, home in GIVEN.items()}
        return "\n".join(line for name, one in found.items() for line in _named(name, one))
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
        yield f"```python\n{_definition(name.rpartition('.')[2])}\n```\n"
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


def _definition(name: str) -> str:
    """Of an alias of a type, as the source has it."""
    import forgetscope as fs

    module = import_module(fs._HOME_OF[name])
    found = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.Assign)]
    return next(ast.unparse(node) for node in found if ast.unparse(node.targets[0]) == name)


def _is_ours(found: type, name: str) -> bool:
    """Defined by this class or by one of ours that it builds on, not by a library's, and no plain value."""
    home = next(one for one in found.__mro__ if name in vars(one))
    member = vars(home)[name]
    described = callable(member) or isinstance(member, property | classmethod | staticmethod) or hasattr(member, "attrname")
    return home.__module__.startswith("forgetscope") and described


def _returned(member: Any) -> str:
    of = getattr(member, "fget", None) or getattr(member, "func", None)
    said = _written(of).get("return") if of else None
    return f", `{said}`" if said else ""


def _signature(name: str, found: Any) -> str:
    """As it is called, with types as they are written; one argument a line where it is long."""
    written, arguments = _written(found), list[str]()
    for one in inspect.signature(found).parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in "".join(arguments):
            arguments.append("*")
        arguments.append(_argument(one, written.get(one.name)))
    after = f" -> {written['return']}" if written.get("return", "None") != "None" else ""
    shown = f"({', '.join(arguments)}){after}"
    if len(name) + len(shown) > 80:
        shown = "(\n" + "".join(f"    {one},\n" for one in arguments) + f"){after}"
    return f"```python\n{name}{shown}\n```\n"


def _argument(one: inspect.Parameter, type: str | None) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    typed = f"{stars}{one.name}: {type}" if type else f"{stars}{one.name}"
    if one.default is one.empty:
        return typed
    usual = one.default.__name__ if inspect.isroutine(one.default) else repr(one.default)
    return f"{typed}{' = ' if type else '='}{'...' if '<' in usual else usual}"


def _written(found: Any) -> dict[str, str]:
    """Types of arguments, by name, and of what is returned, as the source has them; of a data class those of its fields."""
    if not inspect.isclass(found):
        return _of_function(_parsed(inspect.unwrap(found)))
    types: dict[str, str] = {}
    for one in reversed([one for one in found.__mro__ if one.__module__.startswith("forgetscope")]):
        for node in _parsed(one).body:
            if isinstance(node, ast.AnnAssign):
                types[ast.unparse(node.target)] = _plain(ast.unparse(node.annotation))
            elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
                types |= _of_function(node)
    return types


def _of_function(node: ast.FunctionDef) -> dict[str, str]:
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    types = {one.arg: ast.unparse(one.annotation) for one in every if one and one.annotation}
    return types | ({"return": ast.unparse(node.returns)} if node.returns else {})


def _plain(type: str) -> str:
    return type[len("InitVar[") : -1] if type.startswith("InitVar[") else type


def _parsed(found: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]


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
