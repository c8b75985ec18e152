"""Measures one Spark format: `python spark_job.py JOB`. Runs in any environment with pyspark and needs no other
package.

JOB is JSON with these fields: format, bootstrap, broker_pid, source, target and tiny (topics), rows, rounds, tasks,
what (a list of read, write and batch), checkpoint, jars, repository. The program prints a line of JSON with the seconds
of each round except the first, which compiles code and starts workers. It must be started as a session leader, because
it adds up the CPU times of all processes in its session.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TINY_ROWS = 100
TINY_BATCHES = 40
WARM_BATCHES = 10  # number of batches before the measurement
LOOK_EVERY_S = 0.25


def main() -> None:
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark also prints to standard output, so descriptor 1 is redirected to standard error.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if job["repository"]:
        os.environ["PYTHONPATH"] = job["repository"]
    builder = (
        SparkSession.builder.master(f"local[{job['tasks']}]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    if job["jars"]:
        builder = builder.config("spark.jars", ",".join(str(path) for path in sorted(Path(job["jars"]).glob("*.jar"))))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    servers = {"kafka.bootstrap.servers": job["bootstrap"]}

    def read() -> None:
        options = servers | {"subscribe": job["source"], "kafka.isolation.level": "read_committed"}
        frame = spark.read.format(job["format"]).options(**options).load()
        (row,) = frame.selectExpr("count(*) n", "sum(length(value)) bytes").collect()
        assert row.n == job["rows"], row.n

    def write() -> None:
        rows = spark.range(job["rows"], numPartitions=job["tasks"])
        frame = rows.selectExpr("cast(id as string) key", "repeat('x', 100) value")
        frame.write.format(job["format"]).options(**servers, topic=job["target"]).mode("append").save()

    measured: dict[str, Callable[[], Any]] = {
        "read_s": lambda: timed(read, job["rounds"], job),
        "write_s": lambda: timed(write, job["rounds"], job),
        "batch_ms": lambda: micro_batches(spark, job, servers),
    }
    found = {name: measure() for name, measure in measured.items() if name.partition("_")[0] in job["what"]}
    print(json.dumps(found), file=answers, flush=True)
    spark.stop()


def timed(work: Callable[[], None], rounds: int, job: dict[str, Any]) -> list[dict[str, float]]:
    """Returns each round's elapsed seconds and CPU seconds.

    The CPU seconds are those of the JVM (`jvm`), of the JVM with its Python workers (`spark`), and of the broker.
    """
    session = Session()

    def now() -> dict[str, float]:
        jvm, python = session.cpu_s()
        broker = cpu_s(Path("/proc", str(job["broker_pid"])))
        return {"wall": time.monotonic(), "spark": jvm + python, "jvm": jvm, "broker": broker}

    found = []
    for _ in range(rounds + 1):
        before = now()
        work()
        after = now()
        found.append({name: after[name] - before[name] for name in before})
    session.close()
    return found[1:]


def micro_batches(spark: Any, job: dict[str, Any], servers: dict[str, str]) -> dict[str, float]:
    """Measures batches of TINY_ROWS rows. Returns three figures in ms per batch: the median duration, the median
    duration of the sink's part, and the CPU time of Spark and the broker together."""
    commits = Path(job["checkpoint"], "commits")
    session = Session()

    def cpu_at(batch: int) -> tuple[float, int]:
        while query.isActive and not (commits / str(batch)).exists():
            time.sleep(0.05)
        seconds = sum(session.cpu_s()) + cpu_s(Path("/proc", str(job["broker_pid"])))
        return seconds, max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())

    query = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=str(TINY_ROWS), numPartitions="2")
        .load()
        .selectExpr("cast(value as string) value")
        .writeStream.format(job["format"])
        .options(**servers, topic=job["tiny"], checkpointLocation=job["checkpoint"])
        .start()
    )
    begun_s, begun = cpu_at(WARM_BATCHES)
    ended_s, ended = cpu_at(TINY_BATCHES)
    query.stop()
    session.close()
    durations = [progress["durationMs"] for progress in query.recentProgress][WARM_BATCHES:]
    medians = {name: statistics.median(each[name] for each in durations) for name in ("triggerExecution", "addBatch")}
    return medians | {"cpu": 1000 * (ended_s - begun_s) / (ended - begun)}


class Session:
    """Measures the CPU time of all processes in this session.

    It polls continuously, because the daemon that forks Spark's workers does not wait for them, and the CPU time of a
    worker that has exited is not reported anywhere.
    """

    def __init__(self) -> None:
        self._own = os.getsid(0)
        self._jvms: dict[str, float] = {}  # CPU seconds, keyed by process id
        self._others: dict[str, float] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def cpu_s(self) -> tuple[float, float]:
        """Returns the CPU seconds of the JVM, and those of all other processes in the session."""
        with self._lock:
            for folder in Path("/proc").iterdir():
                if folder.name.isdecimal():
                    with suppress(OSError):
                        if os.getsid(int(folder.name)) == self._own:
                            is_jvm = (folder / "comm").read_text() == "java\n"
                            (self._jvms if is_jvm else self._others)[folder.name] = cpu_s(folder)
            return sum(self._jvms.values()), sum(self._others.values())

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            self.cpu_s()


def cpu_s(folder: Path) -> float:
    """Returns a process's user and system time, not including its children."""
    fields = (folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
