"""A Spark driver in a separate process: `python -m tests.spark_faults.driver JOB`, where JOB is a Job as JSON.

It writes the numbers of `tests.spark.checks.Numbers` until a batch is done, or copies a topic to its end. It writes a
report to a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.spark.checks import ROWS
from tests.spark.faults import FORMAT, FaultySource, Plan
from tests.support.spark_session import new_session

POLL_S = 0.02
FAILED = 7


@dataclass(frozen=True, slots=True)
class Job:
    """Specifies what a driver writes, where it writes, and when it stops.

    report      file to which the driver writes first its process ids, then the query's id, and finally how the query
                ended
    plan        fields of the planned fault
    last_batch  the query is stopped when this batch is done
    shuffled    number of tasks that the rows are shuffled to, or 0 for no shuffle
    source      topic to copy instead of writing numbers; the query then ends when it has copied the topic
    rows        rows per batch, or offsets per batch if there is a source
    """

    bootstrap: str
    output: str
    checkpoint: str
    report: str
    plan: dict[str, Any]
    last_batch: int
    master: str = "local[2,4]"
    rows: int = ROWS
    shuffled: int = 0
    source: str | None = None
    conf: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def rows_of(spark: Any, job: Job) -> Any:
    if job.source is not None:
        servers = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.source, "startingOffsets": "earliest"}
        read = spark.readStream.format("odradek").options(**servers, maxOffsetsPerTrigger=str(job.rows))
        return read.load().select("key", "value")
    numbers = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=str(job.rows), numPartitions="2").load()
    shuffled = numbers.repartition(job.shuffled) if job.shuffled else numbers
    return shuffled.selectExpr("cast(value as string) value")


def retried_stages(spark: Any, run: str) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = {stage for job in tracker.getJobIdsForGroup(run) for stage in tracker.getJobInfo(job).stageIds}
    return sum((info := tracker.getStageInfo(stage)) is not None and info.currentAttemptId > 0 for stage in stages)


def main() -> int:
    job = Job(**json.loads(sys.argv[1]))
    spark = new_session(job.master, job.conf)
    spark.dataSource.register(FaultySource)
    report: dict[str, Any] = {
        "pids": [spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()],
        "query": None,
        "error": None,
        "retried_stages": 0,
    }
    written(job.report, report)  # A fault may kill the driver before start() returns.
    writer = (
        rows_of(spark, job)
        .writeStream.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": job.bootstrap, "topic": job.output})
        .options(checkpointLocation=job.checkpoint, fault=Plan(**job.plan).option())
    )
    query = (writer if job.source is None else writer.trigger(availableNow=True)).start()
    report["query"] = query.id
    written(job.report, report)
    while query.isActive and not Path(job.checkpoint, "commits", str(job.last_batch)).exists():
        time.sleep(POLL_S)
    query.stop()
    report["error"] = None if query.exception() is None else str(query.exception())
    report["retried_stages"] = retried_stages(spark, query.runId)
    written(job.report, report | {"over": True})
    spark.stop()
    return FAILED if report["error"] else 0


def written(path: str, report: dict[str, Any]) -> None:
    Path(f"{path}.new").write_text(json.dumps(report), encoding="utf-8")
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    sys.exit(main())
