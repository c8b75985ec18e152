"""A progress bar on stderr for what a session of Spark is doing: tasks that are done, of those that are planned."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.25
_WIDTH = 30


@contextmanager
def progress(spark: SparkSession, title: str, to: TextIO | None = None) -> Iterator[None]:
    """Nothing is drawn where stderr is no terminal, nor through Spark Connect, which does not tell."""
    stream = sys.stderr if to is None else to
    context = getattr(spark, "_sc", None)
    if context is None or not stream.isatty():
        yield
        return
    tracker = context.statusTracker()
    known: set[int] = set()

    def counts() -> tuple[int, int]:
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            known.update(info.stageIds if info is not None else ())
        stages = [stage for stage in map(tracker.getStageInfo, sorted(known)) if stage is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    with drawn(title, counts, stream):
        yield


@contextmanager
def drawn(title: str, counts: Callable[[], tuple[int, int]], to: TextIO, *, every_s: float = EVERY_S) -> Iterator[None]:
    """counts: done and planned; asked from a thread of its own. The bar is wiped out in the end."""
    begun = time.monotonic()
    ended = threading.Event()

    def draw() -> None:
        while not ended.wait(every_s):
            try:
                done, planned = counts()
            except Exception:  # the session is being stopped
                return
            to.write("\r" + bar(title, done, planned, time.monotonic() - begun) + "\x1b[K")
            to.flush()

    thread = threading.Thread(target=draw, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        to.write("\r\x1b[K")
        to.flush()


def bar(title: str, done: int, planned: int, seconds: float) -> str:
    """One line, without its end."""
    filled = _WIDTH * done // planned if planned else 0
    minutes, rest = divmod(int(seconds), 60)
    tasks = f"{done:,} of {planned:,} tasks" if planned else "starting"
    return f"{title}  {'█' * filled}{'░' * (_WIDTH - filled)}  {tasks}  {minutes}:{rest:02d}"
