"""The paper's factorial shape trained for real at the scale of a desk: its results, which come with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from forgetscope.errors import StoreError
from forgetscope.housekeeping.importing import Imported, import_steps
from forgetscope.outputs import Progress, unheard
from forgetscope.store import Store

FILES = "*.tar.xz"  # named by increment, and by retention where they hold one partition


def unpack_replication(store: Store | Path | str, progress: Progress = unheard) -> Imported:
    """Bring the trained steps of `examples/replication.toml` into a store, each verified; docs/replication.md reads them.

    What is there already stays. States are not among them: a run that goes on from a step makes its own again.

    >>> import forgetscope as fs
    >>> found = fs.unpack_replication("replication")
    >>> len(found.new) == len(fs.Store("replication").ids())
    True
    """
    opened = store if isinstance(store, Store) else Store(store)
    result = Imported()
    with resources.as_file(resources.files("forgetscope.housekeeping") / "replicated") as folder:
        files = sorted(folder.glob(FILES))
        if not files:
            raise StoreError(
                "This installation has no results of the replication. Install forgetscope again, from a whole wheel."
            )
        for number, file in enumerate(files):
            progress("files", number, len(files))
            result += import_steps(file, opened)
        progress("files", len(files), len(files))
    return result
