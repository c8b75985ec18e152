"""Opens a job's Spark session, draws the job's progress bar, and explains why Spark failed to start.

The stderr of the JVM and of Python workers is redirected to a file, so that the terminal shows only the job. If Spark
does not start, the error quotes the last lines of this file. If the job fails, the error names the file.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
INSTALL = "Spark is missing: pip install odradek[spark]"
JAVA = (
    "Spark found no Java, or the Java that it found is too old: install Java 17 or later (Debian: apt install"
    " openjdk-17-jre-headless), and set JAVA_HOME if there are several"
)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_EXCEPTION_LINE = re.compile(
    r"^(?:[\w.]*odradek[\w.]*|pyspark\.errors[\w.]*|TimeoutError|\w*Error|\w*Exception): (.+)$", re.M
)
_LAST_CHARACTERS = 2_000


class JobFailed(Exception):
    """Spark could not be started, or a Spark job failed. The message addresses the user who started the job."""


@contextmanager
def session(
    title: str, master: str | None = None, settings: Mapping[str, str] | None = None, *, is_verbose: bool = False
) -> Iterator[SparkSession]:
    """Yields a session that has `format("odradek")`. Uses the active session if there is one and leaves it running;
    otherwise starts a session and stops it at the end of the block. Raises JobFailed if Spark fails, whether here or
    within the block.

    title       the application's name in Spark
    master      default: the master of spark-submit, or `local[*]`
    settings    Spark settings for a new session
    is_verbose  leave the JVM's output on stderr
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from odradek.spark.data_source import OdradekSource
    except ImportError as error:
        raise JobFailed(f"{INSTALL} ({error})") from error
    active = SparkSession.getActiveSession()
    output = _ProcessOutput(is_verbose or active is not None or _is_submitted())
    try:
        spark = active or _started(title, master, settings or {}, output)
        spark.dataSource.register(OdradekSource)
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        raise JobFailed(_not_started(error, output.text())) from error
    try:
        yield spark
    except (Py4JError, PySparkException) as error:
        raise JobFailed(_reason(str(error)) + output.describe()) from error
    else:
        output.forget()
    finally:
        if active is None:
            with suppress(Exception):  # a JVM that has already exited cannot be stopped
                spark.stop()


def _started(title: str, master: str | None, settings: Mapping[str, str], output: _ProcessOutput) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = SETTINGS | dict(settings)
    if master is None and not _is_submitted():
        master = DEFAULT_MASTER
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen = _LOCAL | chosen
    builder = SparkSession.builder.appName(title)
    if master is not None:
        builder = builder.master(master)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with output.capture():
        return builder.getOrCreate()


def _is_submitted() -> bool:
    """Returns whether spark-submit started the JVM. If so, spark-submit's options determine the master and the
    settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _ProcessOutput:
    """The file that collects the stderr of Spark's processes."""

    def __init__(self, is_left: bool) -> None:
        self._path: Path | None = None
        if not is_left:
            handle, name = tempfile.mkstemp(prefix="odradek-spark-", suffix=".log")
            os.close(handle)
            self._path = Path(name)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Makes processes started within the block inherit the file as their stderr."""
        if self._path is None:
            yield
            return
        sys.stderr.flush()
        saved_fd = os.dup(2)
        try:
            with open(self._path, "ab") as file:
                os.dup2(file.fileno(), 2)
            yield
        finally:
            os.dup2(saved_fd, 2)
            os.close(saved_fd)

    def text(self) -> str:
        return "" if self._path is None else self._path.read_text(errors="replace")[-_LAST_CHARACTERS:]

    def describe(self) -> str:
        return "" if self._path is None else f"\nThe output of Spark is in {self._path}"

    def forget(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _not_started(error: Exception, output: str) -> str:
    no_java = "JAVA_GATEWAY_EXITED" in str(error) and ("JAVA_HOME" in output or "UnsupportedClassVersion" in output)
    if no_java or isinstance(error, FileNotFoundError):
        return JAVA
    return f"Spark did not start: {_reason(str(error))}\n{output}".rstrip()


def _reason(text: str) -> str:
    """Returns the line of a traceback that explains the failure. This is the last line that begins with the name of a
    Python error, or else the first line."""
    found = _EXCEPTION_LINE.findall(text)
    return found[-1] if found else next((line for line in text.splitlines() if line.strip()), "Spark gave no reason")


EVERY_S = 0.25
_WIDTH = 30


@contextmanager
def progress(spark: SparkSession, title: str, to: TextIO | None = None) -> Iterator[None]:
    """Draws a progress bar within the block. Draws nothing if stderr is not a terminal, or if the session uses Spark
    Connect, which does not report progress."""
    stream = sys.stderr if to is None else to
    context = getattr(spark, "_sc", None)
    if context is None or not stream.isatty():
        yield
        return
    tracker = context.statusTracker()
    stage_ids: set[int] = set()

    def counts() -> tuple[int, int]:
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            stage_ids.update(info.stageIds if info is not None else ())
        stages = [stage for stage in map(tracker.getStageInfo, sorted(stage_ids)) if stage is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    with drawn(title, counts, stream):
        yield


@contextmanager
def drawn(title: str, counts: Callable[[], tuple[int, int]], to: TextIO, *, every_s: float = EVERY_S) -> Iterator[None]:
    """Draws a progress bar within the block and erases it at the end. `counts`, which is called from a separate thread,
    returns the numbers of finished and planned tasks."""
    started_s = time.monotonic()
    ended = threading.Event()

    def draw() -> None:
        while not ended.wait(every_s):
            try:
                done, planned = counts()
            except Exception:  # the session is being stopped
                return
            to.write("\r" + bar(title, done, planned, time.monotonic() - started_s) + "\x1b[K")
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
    """Formats the progress bar as one line, without a line break."""
    filled = _WIDTH * done // planned if planned else 0
    minutes, rest = divmod(int(seconds), 60)
    tasks = f"{done:,} of {planned:,} tasks" if planned else "starting"
    return f"{title}  {'█' * filled}{'░' * (_WIDTH - filled)}  {tasks}  {minutes}:{rest:02d}"
