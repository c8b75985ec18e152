"""Compares `format("odradek")` with Spark's own Kafka source and sink, on one broker: `make bench ARGS=spark`.

Spark's connector runs in Spark 4.0 in a separate environment (`make .make/spark-connector/jars`). Odradek's format runs
in this environment. Both read the same topic, write the same rows, and write micro-batches of 100 rows one by one.
Spark's sink writes at least once, and Odradek's writes exactly once. Each figure is the lowest of all rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from odradek.client.sync import Producer
from tests.clients.admin import create_topic
from tests.clients.own_producers import TWO_PHASE
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.oracle import REPOSITORY

CONNECTOR = REPOSITORY / ".make" / "spark-connector"
PARTITIONS = 4
CHUNK = 2_000
WHAT = ("read", "write", "batch")


def filled(bootstrap: str, rows: int) -> str:
    topic = create_topic(bootstrap, "source", PARTITIONS)
    with Producer(bootstrap_servers=bootstrap, transactional_id="filler") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for begin in range(0, rows, CHUNK):
            numbers = range(begin, min(begin + CHUNK, rows))
            keys = pa.array([b"%d" % number for number in numbers], pa.binary())
            values = pa.array([b"x" * 100] * len(numbers), pa.binary())
            producer.send_batch(topic, begin // CHUNK % PARTITIONS, keys, values)
        producer.commit_transaction()
    return topic


def run(name: str, broker: Broker, source: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    is_ours = name == "odradek"
    job = {
        "format": name,
        "bootstrap": broker.bootstrap,
        "broker_pid": broker.pid,
        "source": source,
        "target": create_topic(broker.bootstrap, f"{name}-target", PARTITIONS),
        "tiny": create_topic(broker.bootstrap, f"{name}-tiny", 2),
        "rows": options.rows,
        "rounds": options.rounds,
        "tasks": options.tasks,
        "what": options.what,
        "checkpoint": str(folder / name),
        "jars": "" if is_ours else str(CONNECTOR / "jars"),
        "repository": str(REPOSITORY) if is_ours else "",
    }
    python = sys.executable if is_ours else str(CONNECTOR / "venv/bin/python")
    words = [python, str(Path(__file__).with_name("spark_job.py")), json.dumps(job)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-4000:])
    return dict(json.loads(done.stdout))


def report(name: str, found: dict[str, Any], rows: int) -> str:
    lines = []
    for what in [each for each in ("read", "write") if f"{each}_s" in found]:
        rounds = found[f"{what}_s"]
        spark, jvm, broker, wall = (min(each[kind] for each in rounds) for kind in ("spark", "jvm", "broker", "wall"))
        lines.append(
            f"{name:<8} {what:<6} {rows / (spark + broker):>10,.0f} rows per CPU second ({spark:.2f} s of Spark, of"
            f" which {jvm:.2f} s of the JVM; {broker:.2f} s of the broker); {rows / wall:,.0f} rows/s by the clock"
        )
    if (batch := found.get("batch_ms")) is not None:
        lines.append(
            f"{name:<8} batch  {batch['triggerExecution']:.0f} ms for a micro-batch of 100 rows, of which the sink"
            f" {batch['addBatch']:.0f} ms (medians); {batch['cpu']:.0f} ms of CPU"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2, help="number of tasks, also for writing; default: %(default)s")
    parser.add_argument("--only", choices=("kafka", "odradek"), help="measure only this source and sink")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT, help="default: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data", TWO_PHASE) as broker:
        source = filled(broker.bootstrap, options.rows)
        for name in ("kafka", "odradek") if options.only is None else (options.only,):
            print(report(name, run(name, broker, source, Path(folder), options), options.rows), flush=True)


if __name__ == "__main__":
    main()
