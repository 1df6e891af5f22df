"""What can be seen of a store: the state of its steps, and the pages of those that are done. Looked at only when asked."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.observed import Observed, open_observed
from forgetscope.errors import StoreError
from forgetscope.report.pages.live import live_document, state_bytes
from forgetscope.report.pages.writing import rendered
from forgetscope.store import Store
from forgetscope.underway.running import Finished, Lookout
from forgetscope.watching.aside import aside

PROBLEMS = 20  # the latest
PAGES = 4  # that are kept; each is some five megabytes


class Sight:
    """Of one store, for any number of lookers: the store is looked at once for all of them."""

    def __init__(self, store: Store, every: float) -> None:
        """every: seconds between two questions of a page."""
        self._store, self._every = store, every
        self._problems: deque[str] = deque(maxlen=PROBLEMS)
        self._lookout = Lookout(store, self._problems.append)
        self._looking, self._rendering = asyncio.Lock(), asyncio.Lock()
        self._state, self._looked = b"", -float("inf")
        self._finished: dict[str, Finished] = {}
        self._pages: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    async def state(self) -> bytes:
        """As JSON; the same bytes while nothing changes."""
        async with self._looking:
            if time.monotonic() - self._looked >= self._every / 2:
                self._state = await aside(self._look)
                self._looked = time.monotonic()
            return self._state

    async def page(self, step: str) -> bytes | None:
        """The page of the experiment that ends with a finished step which the state lists; None of any other.

        StoreError where the step cannot be shown."""
        await self.state()
        found = self._finished.get(step)
        if found is None:
            return None
        key = found.step, found.committed
        async with self._rendering:
            if key not in self._pages:
                self._pages[key] = await aside(lambda: self._rendered(found))
            self._pages.move_to_end(key)
            while len(self._pages) > PAGES:
                self._pages.popitem(last=False)
            return self._pages[key]

    def _look(self) -> bytes:
        lost = ""
        try:
            Store.existing(self._store.path)
        except StoreError:
            lost = f"There is no store at {self._store.path} now: it was moved or deleted, or its disk is away."
        found, finished = self._lookout.look(), self._lookout.finished()
        self._finished = {one.step: one for one in finished}
        return state_bytes(live_document(found, finished, self._problems, lost))

    def _rendered(self, found: Finished) -> bytes:
        name, _, number = found.step.partition("/")
        if not number:
            return rendered(Experiment(self._store.chain(found.step))).encode()
        chain = [step for step in open_observed(self._store.path, name).chain if step.number <= int(number)]
        return rendered(Observed(chain)).encode()
