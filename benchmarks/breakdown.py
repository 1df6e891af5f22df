"""Where the time of a rehearsal step's epoch and of a probe goes: the operations that take most of it.

    python benchmarks/breakdown.py

ResNet-32 on real CIFAR-100 images (`forgetscope data get cifar100`), one thread, by torch's own profiler.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from forgetscope.data.library import load_data
from probe import sides_of
from training import rehearsal_step

SHOWN = 0.01  # operations with at least this share


def show(title: str, work: Callable[[], object]) -> None:
    work()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    events = found.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    shares = sorted(((event.self_cpu_time_total / total, event.key) for event in events), reverse=True)
    listed = [f"{100 * share:.1f} % {name.removeprefix('aten::')}" for share, name in shares if share >= SHOWN]
    rest = sum(share for share, _ in shares if share < SHOWN)
    print(f"{title}: {', '.join(listed)}; {100 * rest:.1f} % everything else", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    data = load_data("cifar100")
    show("rehearsal step", rehearsal_step(data, "resnet32", 45)[0])
    show("probe", sides_of(data, "resnet32", 50)[1]["probe"])


if __name__ == "__main__":
    main()
