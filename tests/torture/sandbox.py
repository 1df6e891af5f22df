"""What a command that reads a stranger's files may do: limits on memory, time and disk, and a log of what it must not touch.

Python's own audit hooks tell of every file that is opened for writing, every name that changes, every process, connection and
piece of code; what is not allowed is written down, not stopped, so that the program goes on as it would.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMORY = 4 << 30  # bytes of address space beyond what the process has when it starts: allocators reserve more than they use
GROWTH = 400 << 20  # bytes of memory that a command may really take
SECONDS = 20  # of processor time
FILE = 64 << 20  # bytes of any file that is written
NOWHERE = (os.devnull, "/dev/tty", "/proc/self/")

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = {  # event: which of its arguments are paths that change
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "os.setxattr": (0,),
    "shutil.rmtree": (0,),
}
STARTING = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.startfile", "pty.spawn")
CONNECTING = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto")


def enter(*, folder: str, allowed: list[str], log: str) -> None:
    """From here on. folder: where the command works; allowed: where it may write."""
    roots = tuple(str(Path(path).resolve()) for path in allowed)
    strangers = str(Path(folder).resolve().parent)  # code from anywhere in there is a stranger's
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.chdir(folder)
    tempfile.tempdir = None  # TMPDIR is another one now
    sys.addaudithook(_hook(roots, strangers, lambda line: os.write(descriptor, f"{line}\n".encode(errors="replace"))))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _hook(roots: tuple[str, ...], strangers: str, tell: Callable[[str], object]) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = flags & WRITING if isinstance(flags, int) else isinstance(mode, str) and set(mode) & set("wax+")
            if writes and not isinstance(path, int) and not _inside(path, roots):
                tell(f"opened {path!r} for writing")
        elif event in CHANGING:
            for place in CHANGING[event]:
                if isinstance(args[place], str | bytes) and not _inside(args[place], roots, last=False):
                    tell(f"{event} {args[place]!r}")
        elif event == "exec" and str(args[0].co_filename).startswith(strangers):
            tell(f"ran code of {args[0].co_filename!r}")
        elif event in STARTING or event in CONNECTING:
            tell(f"{event} {args!r}"[:300])

    return hook


def _inside(path: str | bytes, roots: tuple[str, ...], *, last: bool = True) -> bool:
    """last: whether a link in the last place is followed, as opening does and renaming does not."""
    named = Path(os.fsdecode(path))  # not resolve(): a link to itself would raise here, in the middle of the command
    real = os.path.realpath(named) if last else str(Path(os.path.realpath(named.parent), named.name))
    return real.startswith(NOWHERE) or any(real == root or real.startswith(root + os.sep) for root in roots)
