"""A Spark Connect client: `python -m tests.spark_faults.connected BOOTSTRAP TOPIC CHECKPOINT LAST_BATCH`.

It runs a query that writes rows to the topic until the batch LAST_BATCH is done. Then it counts the rows in the topic
and prints a report as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from odradek.spark import install
from tests.clients.speakers import wait_for
from tests.spark.checks import PATIENCE_S, ROWS
from tests.support.spark_session import SETTINGS

POLL_S = 0.05


def main() -> None:
    bootstrap, topic, checkpoint, last_batch = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # The server writes to standard output.
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    listener = install(spark, bootstrap_servers=bootstrap)
    servers = {"kafka.bootstrap.servers": bootstrap}
    query = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=str(ROWS), numPartitions="2")
        .load()
        .selectExpr("cast(value as string) value")
        .writeStream.format("odradek")
        .options(**servers, topic=topic, checkpointLocation=checkpoint)
        .start()
    )
    while query.isActive and not Path(checkpoint, "commits", last_batch).exists():
        time.sleep(POLL_S)
    error = query.exception()
    query.stop()
    wait_for("the listener", lambda: any(not each.is_active for each in listener.progress), PATIENCE_S)
    listener.wait(PATIENCE_S)
    # This read would miss the rows of any transaction that the listener has not ended.
    read = spark.read.format("odradek").options(**servers, subscribe=topic).load()
    report = {
        "query": query.id,
        "error": None if error is None else str(error),
        "session": type(spark).__module__,
        "rows": read.count(),
        "ended": [each.ended for each in listener.progress if each.query == query.id],
    }
    print(json.dumps(report), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
