"""A Spark 4.2 session with Spark's own Kafka connector. It executes the commands that it reads from standard input, one
JSON object per line, and answers each command with one line of JSON.

It runs as `python session.py FOLDER_OF_JARS` in a separate virtual environment that contains only pyspark.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
ROWS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("headers", HEADERS),
    ]
)


def read(spark: Any, options: dict[str, str]) -> object:
    """Returns [topic, partition, offset, key, value, headers] for each record."""
    return [
        [
            row.topic,
            row.partition,
            row.offset,
            _text(row.key),
            _text(row.value),
            [[header.key, _text(header.value)] for header in getattr(row, "headers", None) or []],
        ]
        for row in spark.read.format("kafka").options(**options).load().collect()
    ]


def tasks(spark: Any, options: dict[str, str]) -> object:
    return spark.read.format("kafka").options(**options).load().rdd.getNumPartitions()


def write(spark: Any, options: dict[str, str], rows: list[list[Any]]) -> object:
    made = [
        (key.encode(), value.encode(), partition, [(name, text.encode()) for name, text in headers])
        for key, value, partition, headers in rows
    ]
    spark.createDataFrame(made, ROWS).write.format("kafka").options(**options).save()
    return None


def copy(spark: Any, source: dict[str, str], sink: dict[str, str]) -> object:
    """Copies all existing records. Returns the number of non-empty batches, the number of rows, and the metrics of the
    last batch."""
    query = (
        spark.readStream.format("kafka")
        .options(**source)
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**sink)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return {
        "batches": len(batches),
        "rows": sum(progress["numInputRows"] for progress in batches),
        "metrics": dict(batches[-1]["sources"][0]["metrics"]) if batches else {},
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


ACTIONS: dict[str, Callable[..., object]] = {"read": read, "tasks": tasks, "write": write, "copy": copy}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark writes to standard output.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    jars = ",".join(str(path) for path in sorted(Path(sys.argv[1]).glob("*.jar")))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": ACTIONS[request.pop("do")](spark, **request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
