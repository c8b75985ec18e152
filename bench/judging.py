"""Measures the judge on a recording: `python -m bench judging [--exchanges N]`.

The recording is created in rounds with new clients. Three clients use librdkafka: an idempotent producer, a
transactional copy that commits offsets, and a group member that commits each record. After that, plain connections send
more requests of each kind. `odradek judge FILE` then reads a quarter, half and all of the recording, each time in a new
process. The judge's memory must not grow with the recording.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.guard.operations import fetch_at_the_tail, heartbeat, offset_commit, produce, transactions
from bench.process_usage import MIB
from bench.recordings import RecordedBroker
from bench.topics import topic
from odradek.protocol.recording import Kind, Recording

PATIENCE_S = 60
RECORDS = 200  # records per client and round
RECORDS_OF_A_TRANSACTION = 10
OPERATIONS = (produce([0], 100, 12), fetch_at_the_tail(100, 12), heartbeat, offset_commit, transactions)
OPERATIONS_OF_A_ROUND = 4000  # operations per kind and round
# This program runs instead of `python -m odradek`. It prints its CPU time and peak memory at the end.
JUDGE = """
import atexit, runpy, sys, time
def tell():
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    sys.stderr.write(f"{time.process_time()} {peak.split()[1]}")
atexit.register(tell)
runpy.run_module("odradek", run_name="__main__", alter_sys=True)
"""


class Round:
    """Clients that run at the same time, each with its own connections. `number` makes their ids unique."""

    def __init__(self, bootstrap: str, number: int, source: str, target: str) -> None:
        self._bootstrap = bootstrap
        self._number = number
        self._source = source
        self._target = target

    def run(self) -> None:
        with ThreadPoolExecutor() as threads:
            for done in [threads.submit(each) for each in (self._produce, self._copy, self._commit)]:
                done.result()
        for begin in OPERATIONS:
            with ExitStack() as opened:
                turn, done_operations = begin(self._bootstrap, opened), 0
                while done_operations < OPERATIONS_OF_A_ROUND:
                    done_operations += turn()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(self._source, b"x" * 100, str(number))
            if producer.flush(PATIENCE_S):
                raise RuntimeError("a record was not acknowledged")

    def _copy(self) -> None:
        consumer = self._consumer(f"copy-{self._number}")
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": f"copy-{self._number}"})
        producer.init_transactions(PATIENCE_S)
        for _ in range(RECORDS // RECORDS_OF_A_TRANSACTION):
            producer.begin_transaction()
            offsets = {}
            for _ in range(RECORDS_OF_A_TRANSACTION):
                record = consumer.poll(PATIENCE_S)
                if record is None or record.error():
                    raise RuntimeError("no record came")
                producer.produce(self._target, record.value(), record.key())
                partition, offset = record.partition(), record.offset()
                assert partition is not None
                assert offset is not None
                offsets[partition] = offset + 1
            places = [TopicPartition(self._source, index, offset) for index, offset in offsets.items()]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
        consumer.close()

    def _commit(self) -> None:
        consumer = self._consumer(f"commit-{self._number}")
        for _ in range(RECORDS):
            record = consumer.poll(PATIENCE_S)
            if record is None or record.error():
                raise RuntimeError("no record came")
            consumer.commit(message=record, asynchronous=False)
        consumer.close()

    def _consumer(self, group: str) -> Consumer:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 20,
            "fetch.wait.max.ms": 5,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self._source])
        return consumer


def record(folder: Path, exchanges: int) -> Path:
    """Creates a recording with at least `exchanges` exchanges."""
    number = 0
    with RecordedBroker(folder / "data", {"odradek.control.enable": "true"}) as broker:
        recording = broker.data_dir.with_name("recording")
        while not number or exchanges_in(recording) < exchanges:
            number += 1
            with topic(broker.bootstrap, 4) as source, topic(broker.bootstrap, 4) as target:
                Round(broker.bootstrap, number, source, target).run()
    return recording


def exchanges_in(recording: Path, stop_at: int | None = None, to: Path | None = None) -> int:
    """Returns the number of exchanges in a recording.

    If `to` is given, also copies the recording's blocks to that file, up to the block that contains the start of
    exchange number `stop_at`.
    """
    count, end = 0, 0
    with recording.open("rb") as file:
        reading = Recording(file.read)
        for entry in reading.entries():
            if entry.kind is Kind.RECEIVED:
                count += 1
                if stop_at is not None and count >= stop_at and not end:
                    end = reading.position
    if to is not None:
        to.write_bytes(recording.read_bytes()[: end or None])
    return count


def judge(recording: Path) -> tuple[float, float]:
    """Judges a recording. Returns the CPU time in seconds and the peak memory in MiB."""
    words = [sys.executable, "-c", JUDGE, "judge", str(recording)]
    judged = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    cpu_s, peak_kib = judged.stderr.split()[-2:]
    return float(cpu_s), int(peak_kib) * 1024 / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=400_000)
    parser.add_argument("--recording", type=Path, help="judge this recording instead of creating one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as name:
        folder = Path(name)
        recording = options.recording or record(folder, options.exchanges)
        whole = exchanges_in(recording)
        for part in (4, 2, 1):
            prefix = folder / "prefix"
            exchanges_in(recording, whole // part, prefix)
            count = exchanges_in(prefix)
            cpu_s, peak_mib = judge(prefix)
            size = prefix.stat().st_size / MIB
            figures = f"{cpu_s:6.1f} s of CPU, {cpu_s / count * 100_000:5.2f} s for each 100,000, {peak_mib:6.1f} MiB"
            print(f"{count:9,} exchanges, {size:6.1f} MiB: {figures}", flush=True)


if __name__ == "__main__":
    main()
