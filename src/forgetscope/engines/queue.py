"""Which job comes next: the state of a plan's graph while it is being run. Knows no science and no processes."""

import heapq
from collections.abc import Collection, Mapping

from forgetscope.benchmark.costs import longest_ahead
from forgetscope.benchmark.plans import Job, descendants


class JobQueue:
    """Jobs become ready when their parent is done. The one with the longest way to go comes first.

    What builds on a job that ended badly is blocked, and nothing else is."""

    def __init__(
        self, jobs: Mapping[str, Job], done: Collection[str], bad: Collection[str], costs: Mapping[str, float]
    ) -> None:
        self._jobs = jobs
        self.done = set(done)
        self.blocked = descendants(jobs, bad) - self.done
        self.running: set[str] = set()
        self._children: dict[str | None, list[str]] = {}
        for job in jobs.values():
            self._children.setdefault(job.parent, []).append(job.id)
        todo = {id: job for id, job in jobs.items() if id not in self.done}
        self._ahead = longest_ahead(jobs, {id: costs[id] if id in todo else 0.0 for id in jobs})
        self._ready: list[tuple[float, str]] = []
        for id, job in todo.items():
            if job.parent is None or job.parent in self.done:
                self._put(id)

    def take(self) -> Job | None:
        while self._ready:
            id = heapq.heappop(self._ready)[1]
            if id not in self.running and self._startable(id):
                self.running.add(id)
                return self._jobs[id]
        return None

    def finished(self, id: str) -> None:
        self.running.discard(id)
        self.done.add(id)
        for child in self._children.get(id, []):
            self._put(child)

    def ended_badly(self, id: str) -> set[str]:
        """It failed or diverged; what builds on it and will not be run."""
        self.running.discard(id)
        fallen = descendants(self._jobs, [id]) - self.done - {id}
        self.blocked |= fallen | {id}
        return fallen

    def again(self, id: str) -> None:
        """It did not come to its end and is to be taken again."""
        self.running.discard(id)
        self._put(id)

    def without_parent(self, id: str) -> None:
        """Its parent turned out not to be usable: that one is to be done again first."""
        parent = self._jobs[id].parent
        assert parent is not None
        self.running.discard(id)
        self.done.discard(parent)
        if parent not in self.running:
            self._put(parent)

    @property
    def over(self) -> bool:
        """Nothing runs and nothing can be started."""
        return not self.running and not any(self._startable(id) for _, id in self._ready)

    def left(self) -> set[str]:
        """What is neither done nor blocked."""
        return self._jobs.keys() - self.done - self.blocked

    def _startable(self, id: str) -> bool:
        parent = self._jobs[id].parent
        return id not in self.done and id not in self.blocked and (parent is None or parent in self.done)

    def _put(self, id: str) -> None:
        heapq.heappush(self._ready, (-self._ahead[id], id))
