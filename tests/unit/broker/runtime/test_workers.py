"""Tests jobs that run outside the loop, and the actions that receive their results on the loop."""

import asyncio
import itertools
import threading
import weakref

import pytest

from odradek.broker.runtime.workers import SETTLING_S, DecompressionWorkers, JobResult, ThreadWorkers, join
from tests.support.manual_loop import ManualWorkers
from tests.support.workers_here import WorkersHere

JOBS = 2_000


async def test_the_job_runs_in_another_thread_and_its_end_on_the_loop() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 1)
    ended: asyncio.Future[tuple[int, int]] = loop.create_future()
    workers.run(threading.get_ident, lambda outcome: ended.set_result((outcome.result(), threading.get_ident())))
    worked_in, ended_in = await ended
    workers.close()
    assert ended_in == threading.get_ident()
    assert worked_in != ended_in


async def test_the_result_of_a_job_raises_its_exception() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 1)
    ended: asyncio.Future[JobResult[int]] = loop.create_future()

    def fails() -> int:
        raise OSError("no disk")

    workers.run(fails, ended.set_result)
    outcome = await ended
    workers.close()
    with pytest.raises(OSError, match="no disk"):
        outcome.result()


async def test_close_waits_for_jobs_and_later_jobs_run_in_the_callers_thread() -> None:
    """Checks that a job after `close` runs immediately. When a broker stops, the completion of the last fdatasync can
    start such a job."""
    workers = ThreadWorkers(asyncio.get_running_loop(), 1)
    done: list[str] = []
    workers.run(lambda: done.append("job"), lambda outcome: done.append("end of the job"))
    workers.close()
    assert done == ["job"]
    workers.run(lambda: done.append("late job"), lambda outcome: done.append("end of the late job"))
    assert done == ["job", "late job"]
    assert not workers.is_idle
    await asyncio.sleep(0)
    assert done == ["job", "late job", "end of the job", "end of the late job"]
    assert workers.is_idle


async def test_after_close_each_result_may_start_another_job() -> None:
    """Checks that 10,000 jobs run after `close`, each started by the previous job's result. This happens if a broker
    stops while the same number of partitions are waiting for an fdatasync."""
    workers = ThreadWorkers(asyncio.get_running_loop(), 1)
    workers.close()
    waiting = list(range(10_000))

    def start_next(outcome: JobResult[None] | None = None) -> None:
        if waiting:
            waiting.pop()
            workers.run(lambda: None, start_next)

    start_next()
    while not workers.is_idle:
        await asyncio.sleep(0)
    assert waiting == []


class Task:
    def run(self) -> None:
        pass


async def test_a_thread_that_waits_keeps_nothing_of_its_last_job() -> None:
    """Checks that a waiting thread drops its last job. Otherwise, it could keep a deleted file open, and the file's
    disk space would not be freed."""
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 1, idle_s=600)
    ended: asyncio.Future[JobResult[None]] = loop.create_future()
    task = Task()
    left = weakref.ref(task)
    workers.run(task.run, ended.set_result)
    del task
    await ended
    async with asyncio.timeout(60):
        while left() is not None:  # the thread may not have dropped the job yet
            await asyncio.sleep(0)
    workers.close()


async def test_a_pool_that_ends_waits_for_nothing_and_names_the_threads_that_are_at_work() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), 2)
    may_end = threading.Event()
    workers.run(may_end.wait, lambda outcome: None)
    (thread,) = workers.end()
    assert thread.is_alive()
    may_end.set()
    join([thread])
    assert not thread.is_alive()


async def test_threads_without_jobs_end_and_others_take_their_place() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 2, idle_s=0.001)
    for _ in range(3):
        ended: asyncio.Future[JobResult[int]] = loop.create_future()
        workers.run(threading.get_ident, ended.set_result)
        await ended
        async with asyncio.timeout(30):
            while workers.thread_count:
                await asyncio.sleep(0.001)
    workers.close()


async def test_every_job_runs_while_threads_come_and_go() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 2, idle_s=0.0)
    done: list[int] = []
    all_done = asyncio.Event()

    def ended(outcome: JobResult[int]) -> None:
        done.append(outcome.result())
        if len(done) == JOBS:
            all_done.set()

    for number in range(JOBS):
        workers.run(lambda number=number: number, ended)  # type: ignore[misc]
        if number % 7 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await all_done.wait()
    workers.close()
    assert sorted(done) == list(range(JOBS))


async def test_the_callbacks_of_several_jobs_run_in_one_turn_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 2, now_s=lambda: 0.0)
    turns: list[object] = []
    turn = object()

    def next_turn() -> None:
        nonlocal turn
        turn = object()
        loop.call_soon(next_turn)

    for _ in range(4):
        workers.run(threading.get_ident, lambda outcome: turns.append(turn))
    workers.close()  # all jobs have run, and the loop has not had a turn yet
    next_turn()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(turns) == 4
    assert len(set(map(id, turns))) == 1


async def test_long_callbacks_of_jobs_run_in_several_turns() -> None:
    """Checks that other requests are served between job callbacks if each callback takes long. For example, each of 500
    long responses may take some milliseconds to send."""
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 2, now_s=itertools.count(0.0, 2 * SETTLING_S).__next__)
    happened: list[str] = []
    for _ in range(3):
        workers.run(threading.get_ident, lambda outcome: happened.append("end"))
    workers.close()  # all jobs have run, and the loop has not had a turn yet
    while not workers.is_idle:
        await asyncio.sleep(0)
        happened.append("other")
    assert [kind for kind, _ in itertools.groupby(happened)].count("end") == 3


async def test_a_bug_after_one_job_does_not_keep_the_others_from_their_end() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 1)
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    ended: list[int] = []

    def bug(outcome: JobResult[int]) -> None:
        raise RuntimeError("a bug")

    workers.run(threading.get_ident, bug)
    workers.run(threading.get_ident, lambda outcome: ended.append(outcome.result()))
    workers.close()
    await asyncio.sleep(0)
    assert len(ended) == 1
    assert [type(error) for error in reported] == [RuntimeError]


async def test_threads_are_started_as_they_are_needed() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), 3, "of this test")
    together = threading.Barrier(2, timeout=60)  # without the barrier, one thread might run both jobs
    names: list[str] = []

    def job() -> None:
        together.wait()
        names.append(threading.current_thread().name)

    workers.run(job, lambda outcome: None)
    workers.run(job, lambda outcome: None)
    workers.close()
    assert sorted(names) == ["of this test-0", "of this test-1"]


async def test_jobs_are_done_where_the_system_has_no_thread_left() -> None:
    loop = asyncio.get_running_loop()
    allowed = 0

    def start(thread: threading.Thread) -> None:
        if not allowed:
            raise RuntimeError("can't start new thread")
        thread.start()

    async def worked_in() -> int:
        ended: asyncio.Future[JobResult[int]] = loop.create_future()
        workers.run(threading.get_ident, ended.set_result)
        return (await ended).result()

    workers = ThreadWorkers(loop, 2, start=start)
    assert await worked_in() == threading.get_ident()
    assert workers.is_idle
    assert workers.thread_count == 0
    allowed = 1
    assert await worked_in() != threading.get_ident()
    workers.close()


def test_workers_here_runs_jobs_without_a_loop() -> None:
    ended: list[int] = []
    WorkersHere().run(threading.get_ident, lambda outcome: ended.append(outcome.result()))
    assert ended == [threading.get_ident()]


def test_bytes_that_wait_for_decompression_are_bounded_and_released() -> None:
    workers = ManualWorkers()
    decompression_workers = DecompressionWorkers(workers, max_bytes=100)
    ended: list[JobResult[int]] = []

    def fails() -> int:
        raise OSError("no disk")

    assert decompression_workers.run(60, fails, ended.append)
    assert decompression_workers.run(40, int, ended.append)
    assert not decompression_workers.run(1, int, ended.append)
    assert len(workers.jobs) == 2
    workers.finish_one()
    assert decompression_workers.run(60, int, ended.append)
    workers.finish_all()
    assert len(ended) == 3


def test_a_batch_beyond_the_bound_is_opened_while_nothing_else_waits() -> None:
    workers = ManualWorkers()
    decompression_workers = DecompressionWorkers(workers, max_bytes=100)
    assert decompression_workers.run(1_000, int, lambda _: None)
    assert not decompression_workers.run(1, int, lambda _: None)
    workers.finish_all()
    assert decompression_workers.run(1_000, int, lambda _: None)
