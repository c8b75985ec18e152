"""Copies one topic into another in transactions until it receives SIGTERM or SIGKILL. The process has one JSON
argument.

It logs each step before performing it, one JSON line per event, so that even SIGKILL does not destroy the evidence:
`{"at", "event": "send" | "ask" | "answer" | "again", "transaction", …}`, where `at` is the monotonic clock in ns. It
exits with status GAVE_UP_STATUS if the library reports that this producer cannot continue. librdkafka can report this,
even with Kafka, if the broker crashes in the middle of a transaction. Like any application, the copier must then be
restarted.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, fields
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.cimpl import TopicPartition

GAVE_UP_STATUS = 3
PATIENCE_S = 5.0
IDLE_S = 0.3  # A transaction ends early if no new record arrives for this long.
RECONNECT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    # If the only broker is unavailable, a rebootstrap forgets it, after which librdkafka 2.16 may never send offsets to
    # the transaction (its issue 5511).
    "metadata.recovery.strategy": "none",
}


@dataclass(frozen=True, slots=True)
class Job:
    """The job of a copier. `aborts` is the share of transactions that the copier aborts for no reason, and `seed`
    determines which ones.

    protocol  protocol of the group: classic or consumer
    instance  group.instance.id of a static member, or None
    """

    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str
    journal: str
    per_transaction: int
    aborts: float
    seed: int
    protocol: str = "classic"
    instance: str | None = None

    def to_json(self) -> str:
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)})


def copied(value: str) -> str:
    """Returns a record's transformed value."""
    return f"copy of {value}"


class Copier:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._rng = random.Random(job.seed)
        self._journal = os.open(job.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._is_over = False
        self._count = 0
        self._transaction: str | None = None
        self._begin: dict[int, int] = {}  # by partition: first offset of this transaction; `_next`: its next offset
        self._next: dict[int, int] = {}
        self._position: dict[int, int] = {}  # next expected offset since the assignment, by partition
        self._consumer = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": job.group,
                "client.id": job.transactional_id,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 300,
                **RECONNECT,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "client.id": job.transactional_id,
                "transactional.id": job.transactional_id,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 2,
                **RECONNECT,
            }
        )

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._finish)
        self._persist(self._producer.init_transactions)
        self._consumer.subscribe([self._job.source], on_revoke=self._revoked, on_lost=self._revoked)
        while not self._is_over:
            self._copy_some()
        self._abort()
        self._consumer.close()

    def _finish(self, *_: object) -> None:
        self._is_over = True

    def _copy_some(self) -> None:
        """Copies up to `per_transaction` records in one transaction, or fewer if no more are available."""
        size, last_at = 0, time.monotonic()
        while size < self._job.per_transaction and not self._is_over:
            message = self._consumer.poll(0.05)
            if self._transaction is None:
                size = 0  # A rebalance has taken the partition away.
            if message is None:
                if size and time.monotonic() - last_at > IDLE_S:
                    break
                continue
            if message.error() is not None:
                continue  # The broker is unavailable or restarting. The client recovers on its own.
            if self._is_next(message):
                self._copy(message)
                size, last_at = size + 1, time.monotonic()
        if self._transaction is None:
            return
        if self._is_over or self._rng.random() < self._job.aborts:
            self._abort()
            self._rewind()
            return
        try:
            self._commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()
            self._rewind()

    def _is_next(self, message: Message) -> bool:
        """Returns whether this is the next record. After the leader epoch has changed, librdkafka may deliver a record
        twice, because it validates an earlier position. The source has no gaps."""
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        expected = self._position.get(partition, offset)
        assert offset <= expected, f"offset {offset} of {partition}, where {expected} is next"
        self._position[partition] = max(expected, offset + 1)
        if offset < expected:
            self._note("again", partition=partition, offset=offset)
        return offset == expected

    def _copy(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        if self._transaction is None:
            self._count += 1
            self._transaction = f"{self._job.transactional_id} of {os.getpid()}, {self._count}"
            self._producer.begin_transaction()
        self._begin.setdefault(partition, offset)
        self._next[partition] = offset + 1
        result = copied(value.decode())
        self._note("send", partition=partition, value=result)
        while True:
            try:
                self._producer.produce(self._job.target, result, message.key(), partition=partition)
                break
            except BufferError:
                self._producer.poll(0.01)
            except KafkaException as error:
                # The transaction has already failed, and ending it will report the failure. All other errors are bugs.
                if error.args[0].name() != "_STATE":
                    raise
                break
        self._producer.poll(0)

    def _commit(self) -> None:
        offsets = [TopicPartition(self._job.source, index, offset) for index, offset in self._next.items()]
        member = self._consumer.consumer_group_metadata()
        self._persist(lambda: self._producer.send_offsets_to_transaction(offsets, member, PATIENCE_S))
        self._note("ask")
        self._persist(lambda: self._producer.commit_transaction(PATIENCE_S))
        self._note("answer", committed=True)
        self._forget()

    def _abort(self) -> None:
        if self._transaction is None:
            return
        self._persist(lambda: self._producer.abort_transaction(PATIENCE_S))
        self._note("answer", committed=False)
        self._transaction = None

    def _rewind(self) -> None:
        for partition, offset in self._begin.items():
            self._consumer.seek(TopicPartition(self._job.source, partition, offset))
            self._position[partition] = offset
        self._forget()

    def _revoked(self, *_: object) -> None:
        """Aborts the uncommitted work, because another member may continue from the committed offsets."""
        self._abort()
        self._forget()
        self._position.clear()

    def _forget(self) -> None:
        self._transaction = None
        self._begin.clear()
        self._next.clear()

    def _persist(self, step: Any) -> None:
        """Retries a step until it succeeds. Raises fatal errors and errors that require an abort."""
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _note(self, event: str, **more: object) -> None:
        row = {"at": time.monotonic_ns(), "event": event, "transaction": self._transaction, **more}
        os.write(self._journal, json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    try:
        Copier(Job(**json.loads(sys.argv[1]))).run()
    except KafkaException as end:
        if not end.args[0].fatal():
            raise
        print(f"gave up: {end}", file=sys.stderr)
        os._exit(GAVE_UP_STATUS)  # does not wait for the producer's remaining work
