"""Measures transactional ids that are used only once: `python -m bench.transactional_ids`.

Each task of a Spark query that writes exactly once uses a new transactional id (docs/spec/spark.md#s2). The program
writes the records of N completed transactions into `__transaction_state`. It then starts the broker with these records,
and starts it again with a setting that makes them expire.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa

from bench.process_usage import MIB, cpu_seconds, rss_bytes
from odradek.broker.coordinators.shards import java_hash
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.records import encode_record
from odradek.broker.transactions.tables import TxnState
from odradek.client import TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from odradek.spark.names import Sink
from tests.clients.speakers import wait_for
from tests.support.broker_process import BrokerProcess

TOPIC = "__transaction_state"
PARTITIONS = 4
SETTINGS: dict[str, object] = {"transaction.state.log.num.partitions": PARTITIONS}
ADMIN_CLIENT = "__admin_client"  # a client id that is allowed to write to internal topics
CHUNK = 2_000
TASKS = 200
FIRST_PRODUCER_ID = 1_000_000
SAMPLES = 100
PATIENCE_S = 900.0
EXPIRED = "spark.=1000"


def records_of(count: int) -> dict[int, list[tuple[bytes, bytes]]]:
    """Returns the last `__transaction_state` record of each id, keyed by partition."""
    found: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    sink = Sink("spark", "6f0d7e0c-6dd1-4a5d-9d5b-0f1c63b4c1a2")
    now_ms = time.time_ns() // 1_000_000
    for number in range(count):
        name = sink.task_id("0c9a4f1e", number // TASKS, number % TASKS, 0, f"{number:016x}")
        txn = Txn(name, FIRST_PRODUCER_ID + number, 1, -1, TxnState.COMPLETE_COMMIT, updated_ms=now_ms)
        txn.previous_producer_id, txn.started_ms, txn.client_version = txn.producer_id, now_ms, 2
        key, value = encode_record(txn, 2)
        assert value is not None
        found[java_hash(name) % PARTITIONS].append((key, value))
    return found


def fill(bootstrap: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id="first") as producer:
        producer.init_transactions()  # creates the topic
    with Producer(bootstrap_servers=bootstrap, client_id=ADMIN_CLIENT) as producer:
        for partition, records in records_of(count).items():
            for begin in range(0, len(records), CHUNK):
                keys, values = zip(*records[begin : begin + CHUNK], strict=True)
                producer.send_batch(TOPIC, partition, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        producer.flush()


def count_known_ids(bootstrap: str, count: int) -> int:
    """Returns how many of about SAMPLES evenly spaced ids are known to the coordinators."""
    producer_ids = range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + count, count // SAMPLES)
    with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_S * 1000) as admin:
        return len(admin.list_transactions(producer_ids=producer_ids))


def loaded_s(bootstrap: str, count: int) -> float:
    """Returns the seconds until all ids are known. A coordinator does not know a partition's ids while it is loading
    the partition."""
    began = time.monotonic()
    wait_for("the ids", lambda: count_known_ids(bootstrap, count) >= SAMPLES, PATIENCE_S)
    return time.monotonic() - began


def size_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in data_dir.glob(f"{TOPIC}-*/*.log"))


def measure(count: int, folder: Path) -> dict[str, float]:
    found: dict[str, float] = {"ids": count}
    broker = BrokerProcess(folder / "data", SETTINGS)
    with broker:
        assert broker.pid is not None
        found["rss_mib_before"] = rss_bytes(broker.pid) / MIB
        fill(broker.bootstrap, count)
    found["log_mib"] = size_bytes(broker.data_dir) / MIB
    began = time.monotonic()
    with broker:
        assert broker.pid is not None
        found["ready_s"] = time.monotonic() - began
        found["loaded_s"] = loaded_s(broker.bootstrap, count)
        found["start_cpu_s"] = cpu_seconds(broker.pid)
        found["rss_mib"] = rss_bytes(broker.pid) / MIB
    broker = BrokerProcess(folder / "data", SETTINGS | {"odradek.transactional.id.expiration.rules": EXPIRED})
    with broker:
        assert broker.pid is not None
        began = time.monotonic()
        wait_for("their end", lambda: count_known_ids(broker.bootstrap, count) == 0, PATIENCE_S)
        found["expired_s"] = time.monotonic() - began
        with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            ends = consumer.end_offsets([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        found["records"] = sum(ends.values())
        found["rss_mib_expired"] = rss_bytes(broker.pid) / MIB
    began = time.monotonic()
    with broker:
        assert broker.pid is not None
        count_known_ids(broker.bootstrap, count)
        found["restart_s_expired"] = time.monotonic() - began
        found["rss_mib_restarted"] = rss_bytes(broker.pid) / MIB
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.ids, Path(folder))
    print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1))


if __name__ == "__main__":
    main()
