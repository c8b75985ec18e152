"""One format of Spark, measured: `python spark_job.py JOB`. Runs in any environment with pyspark, and needs no more.

JOB is JSON: format, bootstrap, broker_pid, source, target and tiny (topics), rows, rounds, tasks, checkpoint, jars,
repository. Answers with a line of JSON: seconds of each round from the second one on, since the first one compiles and
starts workers. It has to lead a session of its own, whose processes are those whose CPU is counted.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TINY_ROWS = 100
TINY_BATCHES = 20


def main() -> None:
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark talks
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

    found = {
        "read_s": timed(read, job["rounds"], job),
        "write_s": timed(write, job["rounds"], job),
        "batch_ms": micro_batches(spark, job, servers),
    }
    print(json.dumps(found), file=answers, flush=True)
    spark.stop()


def timed(work: Callable[[], None], rounds: int, job: dict[str, Any]) -> list[dict[str, float]]:
    """Seconds of each round by the clock, and of CPU: Spark's (JVM, driver, workers in Python) and the broker's."""
    found = []
    for _ in range(rounds + 1):
        began, spark, broker = time.monotonic(), session_cpu_s(), cpu_s(Path("/proc", str(job["broker_pid"])))
        work()
        found.append(
            {
                "wall": time.monotonic() - began,
                "spark": session_cpu_s() - spark,
                "broker": cpu_s(Path("/proc", str(job["broker_pid"]))) - broker,
            }
        )
    return found[1:]


def micro_batches(spark: Any, job: dict[str, Any], servers: dict[str, str]) -> dict[str, float]:
    """The median of whole batches of TINY_ROWS rows, in ms, and of the sink's part of it."""
    query = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=str(TINY_ROWS), numPartitions="2")
        .load()
        .selectExpr("cast(value as string) value")
        .writeStream.format(job["format"])
        .options(**servers, topic=job["tiny"], checkpointLocation=job["checkpoint"])
        .start()
    )
    while query.isActive and not Path(job["checkpoint"], "commits", str(TINY_BATCHES)).exists():
        time.sleep(0.05)
    query.stop()
    told = [progress["durationMs"] for progress in query.recentProgress][2:]
    return {name: statistics.median(each[name] for each in told) for name in ("triggerExecution", "addBatch")}


def session_cpu_s() -> float:
    """Of all processes of this session, and of those of theirs that have ended."""
    own = os.getsid(0)
    total = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if os.getsid(int(folder.name)) == own:
                    total += cpu_s(folder, with_children=True)
    return total


def cpu_s(folder: Path, *, with_children: bool = False) -> float:
    fields = (folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
