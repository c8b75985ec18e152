"""Helpers for tests of share acknowledgements in transactions: queues, producers, and requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.client import ShareRecord, TopicPartition, UpgradeType
from odradek.client.sync import Admin, Consumer, Producer, ShareConsumer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import QUICK, SETTINGS, more, poll, share_group, worker
from tests.clients.speakers import wait_for
from tests.support.wire import Wire

TEN = [b"%d" % number for number in range(10)]
LOCK_MS = 1_000
BROKER = SETTINGS | {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 1}
Batches = Sequence[tuple[int, int, list[int]]]
ALL: Batches = [(0, 9, [1])]


def upgrade(bootstrap: str, level: int = 1) -> None:
    kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.update_features({"odradek.share.transactions": level}, kind)


def queue_of_ten(bootstrap: str, name: str, **settings: object) -> str:
    """Creates a topic with ten records, and a share group with the same name that reads from the first record."""
    create_topic(bootstrap, name)
    produce(bootstrap, name, *TEN)
    return share_group(bootstrap, name, **settings)


def producer_of(bootstrap: str, transactional_id: str, **more: object) -> Producer:
    settings = {name: value for name, value in QUICK.items() if name.startswith("retry")} | more
    return Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **settings)  # type: ignore[arg-type]


def transactional_worker(bootstrap: str, queue: str) -> ShareConsumer:
    return worker(bootstrap, queue, queue, "transactional")


def delivered_again(bootstrap: str, queue: str, quiet_ms: float = 500) -> list[ShareRecord]:
    """Returns the records that a new member of the group receives within `quiet_ms` after its assignment. The member
    releases the records when it closes."""
    with worker(bootstrap, queue, queue) as other:
        found: list[ShareRecord] = []
        wait_for("an assignment", lambda: more(found, other) or other.assignment())
        ends_at = time.monotonic() + quiet_ms / 1000
        while not found and time.monotonic() < ends_at:
            found += poll(other)
    return found


def outputs(bootstrap: str, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found = []
        while consumer.position(partition) < end:
            found += [record.value for each in consumer.getmany(timeout_ms=100).values() for record in each]
    return found


@dataclass(frozen=True, slots=True)
class Request:
    """A handmade TxnShareAcknowledge request. Omitted fields have valid values."""

    transactional_id: str | None
    group_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    member_epoch: int
    topic_id: bytes
    partition: int = 0
    batches: Batches = tuple(ALL)

    def message(self) -> TxnShareAcknowledgeRequest:
        batches = [
            TxnShareAcknowledgeBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in self.batches
        ]
        partition = TxnShareAcknowledgePartition(partition_index=self.partition, acknowledgement_batches=batches)
        return TxnShareAcknowledgeRequest(
            transactional_id=self.transactional_id,
            group_id=self.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            topics=[TxnShareAcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )

    def send(self, bootstrap: str) -> TxnShareAcknowledgeResponse:
        with Wire(bootstrap) as wire:
            return wire.ask(self.message(), 0, TxnShareAcknowledgeResponse)

    def code(self, bootstrap: str) -> ErrorCode:
        """Sends the request. Returns the response's error code or, if it has none, its partition's error code."""
        answer = self.send(bootstrap)
        codes = [each.error_code for topic in answer.responses for each in topic.partitions]
        return ErrorCode(answer.error_code or codes[0])


def request_of(bootstrap: str, queue: str, consumer: ShareConsumer) -> Request:
    """Returns a valid request for a newly initialised producer."""
    with producer_of(bootstrap, queue) as producer, Admin(bootstrap_servers=bootstrap) as admin:
        producer.init_transactions()
        transaction = admin.describe_transactions([queue])[queue]
        topic_id = admin.describe_topics([queue])[queue].topic_id
    member = consumer.share_group_metadata()
    return Request(
        queue,
        queue,
        transaction.producer_id,
        transaction.producer_epoch,
        member.member_id,
        member.member_epoch,
        topic_id,
    )
