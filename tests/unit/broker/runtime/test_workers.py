"""Jobs that run beside the loop, and their results on the loop."""

import asyncio
import threading

import pytest

from odradek.broker.runtime.workers import JobResult, ThreadWorkers, WorkersHere


async def test_the_job_runs_in_another_thread_and_its_end_on_the_loop() -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, 1)
    ended: asyncio.Future[tuple[int, int]] = loop.create_future()
    workers.run(threading.get_ident, lambda outcome: ended.set_result((outcome.result(), threading.get_ident())))
    worked_in, ended_in = await ended
    workers.close()
    assert ended_in == threading.get_ident()
    assert worked_in != ended_in


async def test_what_a_job_raises_comes_out_of_its_outcome() -> None:
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


async def test_close_waits_for_jobs_and_later_ones_run_at_once() -> None:
    """A broker that stops still has to sync what the last fdatasync brought to light."""
    workers = ThreadWorkers(asyncio.get_running_loop(), 1)
    done: list[str] = []
    workers.run(lambda: done.append("job"), lambda outcome: done.append("end of the job"))
    workers.close()
    assert done == ["job"]
    workers.run(lambda: done.append("late job"), lambda outcome: done.append("end of the late job"))
    assert done == ["job", "late job", "end of the late job"]
    await asyncio.sleep(0)
    assert done[-1] == "end of the job"


def test_workers_here_need_no_loop() -> None:
    ended: list[int] = []
    WorkersHere().run(threading.get_ident, lambda outcome: ended.append(outcome.result()))
    assert ended == [threading.get_ident()]
