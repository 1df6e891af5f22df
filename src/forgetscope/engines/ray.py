"""The Ray engine: a plan's jobs as Ray tasks, on a cluster or on a small one that is started here.

Workers write to the shared store and return only what became of a job. Ray may deliver a task more than once; the store's
commit makes that harmless. The driver may die: what is in the store is done, and the same command goes on.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from forgetscope.benchmark.costs import Rates
from forgetscope.benchmark.plans import Job
from forgetscope.engines.dispatch import FAREWELL, STOPPED, Dispatch
from forgetscope.engines.executor import Executor, Setup
from forgetscope.engines.work import Place, Work
from forgetscope.errors import PASSED_ON, ForgetscopeError, InputError, Interrupted
from forgetscope.experiment.stopping import Stop
from forgetscope.learning.plugins import load_all
from forgetscope.store import Store
from forgetscope.threads import keep_memory

OLDEST = (2, 54)
BEYOND_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0", on Linux too: what Ray starts here listens on loopback only
CHECK_SECONDS = 120.0  # for a node to answer
GONE_SECONDS = 20.0  # until a cluster notices that a node is gone
AHEAD = 2  # tasks that wait in Ray's queue, so that no node idles


@dataclass(frozen=True, kw_only=True)
class Ray(Place):
    """On a running Ray cluster, at `address`; without one, on a cluster of `jobs` CPUs that is started here, bound to loopback,
    and stopped at the end. Ray is imported when it is used.

    >>> import forgetscope as fs
    >>> fs.Ray(address="head:6379").address
    'head:6379'
    """

    address: str | None = None
    jobs: int | None = None  # at a time, at most
    gpus_per_job: float = 0.0

    def settings(self) -> None:
        return None

    @contextmanager
    def hired(self, work: Work) -> Iterator[RayEngine]:
        with _connected(self) as ray:
            yield RayEngine(work, self, ray)


@contextmanager
def _connected(cluster: Ray) -> Iterator[Any]:
    if cluster.address is None:  # Ray reads this when it is imported
        os.environ[BEYOND_LOOPBACK] = "0"
    ray = _import_ray()
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    options["runtime_env"] = {"env_vars": {name: os.environ[name] for name in PASSED_ON if name in os.environ}}
    if cluster.address is None:
        options |= {"address": "local", "num_cpus": cluster.jobs, "include_dashboard": False}
    else:
        options["address"] = cluster.address
    try:
        if cluster.address not in (None, "auto"):
            _reach(str(cluster.address))
        with _own_signals():
            ray.init(**options)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError, OSError) as error:
        where = f"at {cluster.address}" if cluster.address else "on this machine"
        raise InputError(
            f"Cannot reach or start Ray {where}: {str(error).strip().splitlines()[0].rstrip('.')}. "
            "Look at `ray status`; start one with `ray start --head`."
        ) from None
    try:
        if cluster.address is None and not ip_address(ray.util.get_node_ip_address()).is_loopback:
            raise InputError(
                "Ray had been imported before and would listen on all interfaces. "
                "Start a cluster yourself and name it (--address auto), or import ray later."
            )
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not of the form host:port.")
    socket.create_connection((host, int(port)), timeout=10.0).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes over SIGTERM when it starts; ours is to save and stop."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


class RayEngine:
    name = "ray"

    def __init__(self, work: Work, cluster: Ray, ray: Any) -> None:
        self.work, self._cluster, self._ray = work, cluster, ray
        self._limit, self._memory = cluster.jobs, 0.0

    @property
    def count(self) -> int:
        fits = sum(self._fit(node["Resources"]) for node in _alive(self._ray))
        return min(fits, self._limit or fits)

    def prepare(self, memory: float, disk: float) -> None:
        self._memory = memory
        check_nodes(self._ray, self.work, disk)
        if self.count == 0:
            wants = [f"{self.work.threads} CPUs", f"{memory / 1e9:.1f} GB of memory"]
            wants += [f"{self._cluster.gpus_per_job:g} GPUs"] if self._cluster.gpus_per_job else []
            raise InputError(f"No node of the cluster has what a job asks for: {', '.join(wants)}. See `ray status`.")

    def run(self, dispatch: Dispatch, stop: Stop) -> None:
        ray, running = self._ray, dict[Any, Job]()
        here = ray.get_runtime_context().get_node_id()
        board = ray.remote(num_cpus=0)(_Board).options(scheduling_strategy=_on_node(ray, here)).remote()
        task = self._remote(_execute)
        with stop.deferred():
            try:
                while not dispatch.queue.over:
                    if stop.requested:
                        raise Interrupted(STOPPED)
                    limit = min(self.count + AHEAD, self._limit or 10**9)
                    while len(running) < max(1, limit) and (job := dispatch.take()):
                        named = task.options(name=f"step {job.id[:8]}")
                        running[named.remote(self.work.setup(), self.work.request(job), board)] = job
                    ended, _ = ray.wait(list(running), timeout=0.5)
                    self._listen(board, running, dispatch)
                    for reference in ended:
                        self._hear(reference, running.pop(reference), dispatch)
                    dispatch.beat(list(running.values()))
            except Interrupted:
                with suppress(ray.exceptions.RayError):
                    ray.get(board.ask_to_stop.remote(), timeout=5.0)
                    ray.wait(list(running), num_returns=len(running), timeout=FAREWELL)
                raise  # what still runs then ends with our connection

    def calibrate(self, stop: Stop) -> Rates:
        count = min(self.count, 16)  # of many nodes a few tell enough
        task = self._remote(_calibrate)
        options = self.work.plan.template.model_dump(exclude_unset=True)
        try:
            found = self._ray.get([task.remote(self.work.setup(), options) for _ in range(count)])
        except self._ray.exceptions.RayTaskError as error:
            raise ForgetscopeError(str(error).strip().splitlines()[-1]) from None
        return Rates.mean([Rates(**rates) for rates in found])

    def _remote(self, function: Any) -> Any:
        """Deaths are counted in one place, ours; Ray's own retries would start a job elsewhere before we hear of it."""
        names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        wants = {names[resource]: amount for resource, amount in self._wants().items()}
        return self._ray.remote(**wants, max_retries=0)(function)

    def _wants(self) -> dict[str, float]:
        """What a job needs of each resource."""
        wants = {"CPU": self.work.threads, "GPU": self._cluster.gpus_per_job, "memory": int(self._memory)}
        return {resource: amount for resource, amount in wants.items() if amount}

    def _fit(self, resources: Mapping[str, float]) -> int:
        """How many jobs a node can run at a time."""
        return int(min(resources.get(resource, 0.0) / amount for resource, amount in self._wants().items()))

    def _listen(self, board: Any, running: Mapping[Any, Job], dispatch: Dispatch) -> None:
        """What tasks said on their way. If the board is lost, only the display is poorer."""
        jobs = {job.id: job for job in running.values()}
        with suppress(self._ray.exceptions.RayError):
            for step, kind, value in self._ray.get(board.read.remote(), timeout=5.0):
                if kind == "note":
                    dispatch.note(value)
                elif step in jobs:
                    dispatch.epoch_ended(jobs[step], *value)

    def _hear(self, reference: Any, job: Job, dispatch: Dispatch) -> None:
        try:
            dispatch.ended(job, self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:  # our code answers whatever happens, so this is a bug of ours
            dispatch.ended(job, {"event": "failed", "message": str(error).strip().splitlines()[-1]})
        except self._ray.exceptions.RayError as error:
            dispatch.died(job, f"Its worker or node was lost ({type(error).__name__}).")


class _Board:
    """An actor beside the driver: tasks tell it how far they are, and ask it whether to stop."""

    def __init__(self) -> None:
        self._said: list[tuple[str, str, Any]] = []
        self._stop = False

    def say(self, step: str, kind: str, value: Any) -> None:
        self._said.append((step, kind, value))

    def read(self) -> list[tuple[str, str, Any]]:
        said, self._said = self._said, []
        return said

    def ask_to_stop(self) -> None:
        self._stop = True

    def stopping(self) -> bool:
        return self._stop


_executors: dict[str, Executor] = {}  # of this process, which Ray uses for many tasks


def _executor(setup: Setup) -> Executor:
    key = repr(sorted(setup.items()))
    if key not in _executors:
        keep_memory()
        _executors[key] = Executor.ready(setup)
    return _executors[key]


def _execute(setup: Setup, job: Mapping[str, Any], board: Any) -> dict[str, Any]:
    import ray

    stop, over = Stop(), threading.Event()
    stop.requested = ray.get(board.stopping.remote())

    def watch() -> None:
        with suppress(Exception):  # without a board nobody can ask
            while not over.wait(1.0):
                stop.requested = stop.requested or ray.get(board.stopping.remote(), timeout=30.0)

    def say(kind: str, value: Any) -> None:
        board.say.remote(job["id"], kind, value)

    threading.Thread(target=watch, daemon=True).start()
    try:
        if stop.requested:
            raise Interrupted("Stopped before it began.")
        executor = _executor(setup)
        return executor.run(job, lambda *epoch: say("epoch", epoch), lambda text: say("note", text), stop)
    except Interrupted:
        return {"event": "stopped"}  # nobody reads it: the driver is leaving
    except ForgetscopeError as error:
        return {"event": "refused", "message": f"{socket.gethostname()}: {error}"}
    finally:
        over.set()


def _calibrate(setup: Setup, run: Mapping[str, Any]) -> dict[str, float]:
    return asdict(_executor(setup).calibrate(run))


def check_nodes(ray: Any, work: Work, disk: float) -> None:
    """Every node must have this version, the data, and the same store with room in it. Says which has not, and why."""
    token = work.store.path.resolve() / "working" / f"node-check-{uuid.uuid4().hex}"
    token.write_text("seen")
    facts = (work.setup(), str(token), str(work.plan.data.digest), version("forgetscope"), disk)
    task, problems = ray.remote(num_cpus=0, max_retries=0)(_check_node), []
    try:
        nodes = _alive(ray)
        checks = [task.options(scheduling_strategy=_on_node(ray, node["NodeID"])).remote(*facts) for node in nodes]
        until = time.monotonic() + CHECK_SECONDS
        for node, check in zip(nodes, checks, strict=True):
            try:
                problem = ray.get(check, timeout=max(1.0, until - time.monotonic()))
            except ray.exceptions.GetTimeoutError:
                problem = f"does not answer within {CHECK_SECONDS:.0f} s."
            except ray.exceptions.RayError as error:
                if not isinstance(error, ray.exceptions.RayTaskError) and _is_gone(ray, node["NodeID"]):
                    continue  # lost while it was asked, which is no more than one that is lost later
                problem = f"cannot run forgetscope: {str(error).strip().splitlines()[-1]}"
            if problem:
                problems.append(f"Node {node['NodeManagerHostname']} ({node['NodeID'][:8]}) {problem}")
    finally:
        token.unlink(missing_ok=True)
    if problems:
        raise InputError(" ".join([*problems, "Nothing was started."]))


def _check_node(setup: Setup, token: str, digest: str, wanted: str, disk: float) -> str | None:
    """On a node: what is wrong with it, or None."""
    from forgetscope.data.library import load_data

    here, store = version("forgetscope"), Path(setup["store"])
    if here != wanted:
        return f"has forgetscope {here}, not {wanted}. Install the same version everywhere."
    if not Path(token).is_file():
        return f"does not see the store {store}. It must be on a file system that all nodes share."
    try:
        Store(store).prepare()
        load_all(setup["sources"])
        data = load_data(setup["dataset"], setup["image_size"])
    except ForgetscopeError as error:
        return f"is not ready: {error}"
    if data.digest != digest:
        return f"has another data set {setup['dataset']!r} ({data.digest[:8]}, not {digest[:8]}). Copy the cache folder there."
    free = shutil.disk_usage(store).free
    if free < disk:
        return f"has {free / 1e9:,.1f} GB free for the store, which will need {disk / 1e9:,.1f} GB. Make room."
    return None


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _is_gone(ray: Any, id: str) -> bool:
    """Whether a node that did not answer has left; a cluster takes a while to notice."""
    until = time.monotonic() + GONE_SECONDS
    while any(node["NodeID"] == id for node in _alive(ray)):
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def _on_node(ray: Any, id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(id, soft=False)


def _import_ray() -> Any:
    try:
        installed = version("ray")
    except PackageNotFoundError:
        raise InputError("--engine ray: Ray is not installed. Install it: `pip install 'forgetscope[ray]'`.") from None
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise InputError(f"--engine ray: Ray {installed} is too old. `pip install --upgrade 'ray>={oldest}'`.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is run here
    import ray

    return ray
