"""A plan cut into parts for job arrays: no coordinator, because every part is a function of the plan and of its number."""

import heapq
import re
from dataclasses import dataclass
from typing import Self

from forgetscope.benchmark.costs import step_work
from forgetscope.benchmark.plans import Plan
from forgetscope.errors import SpecError


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count`."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise SpecError(f"--shard {text!r} is not of the form i/n with i from 1 to n, for example --shard 2/8.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}-of-{self.count}"

    def steps(self, plan: Plan) -> set[str]:
        """The steps of this part. What builds on the same first step stays together; costs are balanced, the largest first."""
        roots: dict[str, str] = {}
        costs: dict[str, float] = {}
        for job in plan.jobs.values():  # parents first
            roots[job.id] = job.id if job.parent is None else roots[job.parent]
            costs[roots[job.id]] = costs.get(roots[job.id], 0.0) + step_work(job, plan)
        loads = [(0.0, number) for number in range(1, self.count + 1)]
        mine = set()
        for root in sorted(costs, key=lambda root: (-costs[root], root)):
            load, number = heapq.heappop(loads)
            heapq.heappush(loads, (load + costs[root], number))
            if number == self.number:
                mine.add(root)
        return {id for id, root in roots.items() if root in mine}
