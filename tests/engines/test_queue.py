"""The queue: every job once, parents first, and a failure stops nothing but what builds on it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from forgetscope.benchmark.plans import Job, descendants
from forgetscope.data.library import data_facts
from forgetscope.engines.queue import JobQueue
from forgetscope.spec import RunSpec, step_specs

SPEC = step_specs(RunSpec(), ((0,),), data_facts("glyphs").augmentation)[0]
forests = st.lists(st.integers(0, 1000), min_size=1, max_size=15).map(
    lambda draws: {
        str(i): Job(str(i), None if i == 0 or draw % 4 == 0 else str(draw % i), SPEC, 0) for i, draw in enumerate(draws)
    }
)


def queue_of(jobs: dict[str, Job], done: set[str] = frozenset(), bad: set[str] = frozenset()) -> JobQueue:
    return JobQueue(jobs, done, bad, dict.fromkeys(jobs, 1.0))


@given(forests, st.data())
def test_every_job_runs_once_and_after_its_parent_whatever_dies_or_fails(jobs: dict[str, Job], data: st.DataObject) -> None:
    queue, ended, failed = queue_of(jobs), list[str](), set[str]()
    for _ in range(10 * len(jobs)):
        if queue.over:
            break
        while len(queue.running) < 3 and (job := queue.take()):
            assert job.parent is None or job.parent in ended
            assert job.id not in ended
        id = data.draw(st.sampled_from(sorted(queue.running)))
        fate = data.draw(st.sampled_from(["done", "done", "again", "failed"]))
        if fate == "done":
            queue.finished(id)
            ended.append(id)
        elif fate == "again":
            queue.again(id)
        else:
            queue.ended_badly(id)
            failed.add(id)
    if queue.over:
        assert len(ended) == len(set(ended))
        assert set(ended) == jobs.keys() - descendants(jobs, failed)
        assert queue.left() == set()


@given(forests, st.data())
def test_it_goes_on_where_another_stopped(jobs: dict[str, Job], data: st.DataObject) -> None:
    done: set[str] = set()
    for job in jobs.values():  # parents first
        if (job.parent is None or job.parent in done) and data.draw(st.booleans()):
            done.add(job.id)
    bad = {id for id in jobs.keys() - done if data.draw(st.integers(0, 4)) == 0}
    queue, ran = queue_of(jobs, done, bad), set[str]()
    while not queue.over:
        job = queue.take()
        assert job is not None
        ran.add(job.id)
        queue.finished(job.id)
    assert ran == jobs.keys() - done - descendants(jobs, bad)


def test_the_longest_way_comes_first() -> None:
    jobs = {id: Job(id, parent, SPEC, 0) for id, parent in (("a", None), ("b", None), ("c", "b"), ("d", "c"))}
    queue = JobQueue(jobs, (), (), {"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0})
    assert queue.take() == jobs["b"]
    assert queue.take() == jobs["a"]
    assert queue.take() is None


def test_a_parent_that_is_of_no_use_is_done_again() -> None:
    jobs = {id: Job(id, parent, SPEC, 0) for id, parent in (("a", None), ("b", "a"), ("c", "a"))}
    queue = queue_of(jobs, {"a"})
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    queue.without_parent(first.id)
    queue.without_parent(second.id)
    assert queue.take() == jobs["a"]
    assert queue.take() is None
    queue.finished("a")
    assert {job.id for job in (queue.take(), queue.take()) if job} == {"b", "c"}
