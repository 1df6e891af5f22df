"""A user's own policy or network, named `package.module:function` in a run.

Looking reads its file and imports nothing. Running executes the very bytes whose SHA-256 a step's specification holds, or
nothing at all."""

import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from forgetscope.errors import OWN_CODE, ForgetscopeError, OwnCodeFailed, SpecError

Named = Callable[..., Any]
_loaded: dict[tuple[str, str, str], ModuleType] = {}  # by folder, module and digest: what was loaded stays what was hashed
_LIBRARIES = tuple({str(Path(__file__).parents[1]), *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))})


def source_digests(names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the file behind each of these names that is a user's own: another source is another step."""
    return {name: hashlib.sha256(_source(name)[1]).hexdigest() for name in names if ":" in name}


def load_named(name: str, digest: str | None) -> Named:
    """The function that `package.module:function` names, from a file with this SHA-256 and no other.

    The current folder counts, before installed modules; Python's own modules cannot be replaced."""
    module_name, _, attribute = name.partition(":")
    if digest is None:
        raise SpecError(f"{name}: it is not said which version of it, so it is not run. Name it in your own run's file.")
    key = (str(Path.cwd()), module_name, digest)
    if key not in _loaded:
        _loaded[key] = _load(name, module_name, digest)
    function = getattr(_loaded[key], attribute, None)
    if not callable(function):
        raise SpecError(f"{name}: {module_name} has no function {attribute!r}.")
    return function  # type: ignore[no-any-return]


def call_named(name: str, function: Named, *arguments: object) -> Any:
    """Call a user's own function; one that does not take these arguments is told so, for no line of its file is at fault."""
    try:
        return function(*arguments)
    except Exception as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        kinds = ", ".join(type(argument).__name__ for argument in arguments)
        raise OwnCodeFailed(f"{name} cannot be called with ({kinds}): {_told(error)}. {OWN_CODE}") from error


def load_all(sources: Mapping[str, str]) -> None:
    """Load a user's own code, by name and SHA-256, before anything starts: what becomes of its files later does not matter."""
    for name, digest in sources.items():
        load_named(name, digest)


@contextmanager
def blaming_own_code() -> Iterator[None]:
    """What a user's own code raises in the block, as one line that names the place; a bug of ours stays what it is."""
    try:
        yield
    except ForgetscopeError:
        raise
    except (Exception, SystemExit) as error:
        places = [f for f in traceback.extract_tb(error.__traceback__) if _loaded and _is_own(f.filename)]
        if not places:
            raise
        raise OwnCodeFailed(f"{_place(places[-1])}: {_told(error)}. {OWN_CODE}") from error


def _source(name: str) -> tuple[Path, bytes]:
    """The file that holds the module, and its content. No package above it is imported on the way."""
    module_name = name.partition(":")[0]
    first, *rest = module_name.split(".")
    importlib.invalidate_caches()
    folders = sys.path if first in sys.stdlib_module_names else [str(Path.cwd()), *sys.path]
    found = PathFinder.find_spec(first, folders)
    for finder in sys.meta_path if found is None else ():  # such as those of editable installations
        found = found or finder.find_spec(first, None)
    for part in rest:
        found = found and PathFinder.find_spec(part, list(found.submodule_search_locations or ()))
    if found is None:
        remedy = "Run where Python finds it, or install it."
        if module_name.endswith(".py"):
            remedy = f"Write {module_name.removesuffix('.py').replace('/', '.')}:{name.partition(':')[2]}."
        raise SpecError(f"{name}: cannot import {module_name}: there is no such module. {remedy}")
    if found.origin is None or not found.origin.endswith(".py"):
        raise SpecError(
            f"{name}: {module_name} has no source file, and so no version told from another. Define it in a .py file."
        )
    path = Path(found.origin).absolute()
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise SpecError(f"{name}: cannot read {path}: {error.strerror or error}.") from None


def _load(name: str, module_name: str, digest: str) -> ModuleType:
    path, content = _source(name)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise SpecError(
            f"{path} has SHA-256 {found[:12]}, and the run began with {digest[:12]}: it was edited since. "
            "Nothing more was run. Put it back and run the same command to continue; or run it as it is now, as another run."
        )
    package = module_name.rpartition(".")[0]
    if path.is_relative_to(Path.cwd()) and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # for what the module itself imports; last, so that nothing installed is shadowed
    inside = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(module_name, path, submodule_search_locations=inside)
    assert spec is not None  # a .py file has one
    module, before = importlib.util.module_from_spec(spec), sys.modules.get(module_name)
    if before is None or before in _loaded.values():
        sys.modules[module_name] = module  # where dataclasses and pickle look; never instead of somebody else's
    try:
        if package and str(path.parent) not in [*importlib.import_module(package).__path__, *(inside or [])]:
            raise ImportError(f"another package {package} is installed, and found first; rename yours")
        exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)  # never a stale .pyc, no second reading
    except (Exception, SystemExit) as error:
        if sys.modules.get(module_name) is module:
            del sys.modules[module_name]
        frames = traceback.extract_tb(error.__traceback__)
        places = [frame for frame in frames if frame.filename == str(path) or _is_own(frame.filename)]
        where = f" at {_place(places[-1])}" if places else ""
        raise SpecError(f"{name}: cannot import {module_name} ({_told(error)}){where}.") from error
    return module


def _is_own(file: str) -> bool:
    """Not of Python, of an installed package or of ours, unless a run names it."""
    named = any(file == module.__file__ for module in _loaded.values())
    return named or not (file.startswith("<") or any(Path(file).is_relative_to(library) for library in _LIBRARIES))


def _place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{frame.lineno}"


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}".removesuffix(".") if text else type(error).__name__
