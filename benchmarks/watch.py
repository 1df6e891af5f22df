"""What `forgetscope watch` costs while it waits, as a share of one core.

    python benchmarks/watch.py STORE [SECONDS]

A watcher on a screen of its own looks at the store every two seconds, as it does by default; its start is not counted.
"""

import os
import pty
import sys
import threading
import time

from forgetscope.cli import main

SETTLED = 10.0  # seconds after which its libraries are loaded


def measured(store: str, seconds: float) -> float:
    """Processor time of a watcher over time that passes, in a child with a terminal of its own."""
    ours, theirs = os.pipe()
    child, terminal = pty.fork()
    if not child:
        threading.Thread(target=report, args=(theirs, seconds), daemon=True).start()
        sys.argv = ["forgetscope", "watch", store]
        main()
    threading.Thread(target=drained, args=(terminal,), daemon=True).start()
    os.close(theirs)
    with os.fdopen(ours) as answer:
        return float(answer.read())


def report(where: int, seconds: float) -> None:
    time.sleep(SETTLED)
    before, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    os.write(where, str((time.process_time() - before) / (time.monotonic() - began)).encode())
    os._exit(0)


def drained(terminal: int) -> None:
    """Somebody has to read what is drawn."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the child has ended
        return


if __name__ == "__main__":
    folder, *others = sys.argv[1:]
    print(f"{100 * measured(folder, float(others[0]) if others else 60.0):.2f} % of a core")
