"""The operations that the guard compares. They send requests over sockets, because the two commits share only the
protocol, not code.

Requests are sent in bursts, so that most of the measured work is the broker's own. Every response in a burst is
checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from bench.clients import CLIENT_TIMEOUT_S
from bench.coordinators import GROUP, RETRY_S, await_coordinator
from bench.groups import ConsumerGroup
from bench.shares import finalise_share_transactions, heartbeat_of, joined
from bench.streams_groups import NotServed, StreamsGroup
from bench.topics import topic
from bench.transactions import new_pair
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.share_fetch_request import AcknowledgementBatch, ShareFetchRequest
from odradek.protocol.messages.share_fetch_request import FetchPartition as ShareFetchPartition
from odradek.protocol.messages.share_fetch_request import FetchTopic as ShareFetchTopic
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from tests.support.batches import batch_by
from tests.support.requests import produce_request
from tests.support.wire import Wire

PRODUCE_VERSION, TRANSACTIONAL_PRODUCE_VERSION, END_TXN_VERSION = 9, 12, 5
FETCH_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, OFFSET_COMMIT_VERSION = 12, 3, 3, 4, 8
BURST = 16  # number of requests sent together
PRODUCERS = 8
TRANSACTIONS = 2  # transactions per producer and turn
SHARED_RECORDS = 2_000  # enough that no share group runs out of records during all of its turns
SHARE_FETCH_VERSION = 2
SESSION_TIMEOUT_MS = 600_000

Turn: TypeAlias = Callable[[], int]  # sends requests, waits for all responses, and returns the number of operations


class RequestRefused(Exception):
    """The broker responded to a request with an error, so the request's cost is meaningless."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that the guard measures.

    `begin` is passed the broker's host:port, prepares the operation there, and returns a turn. The stack closes
    everything that `begin` opens.
    """

    name: str
    begin: Callable[[str, ExitStack], Turn]


class Bursts:
    """A turn that sends bursts of one request and checks the error code in each response, which is `error_at` bytes
    after the length."""

    def __init__(self, wire: Wire, frame: bytes, error_at: int, bursts: int) -> None:
        self._wire = wire
        self._burst = frame * BURST
        self._error_at = error_at
        self._bursts = bursts

    def __call__(self) -> int:
        for _ in range(self._bursts):
            self._wire.send_bytes(self._burst)
            for _ in range(BURST):
                answer = self._wire.receive_bytes()
                if answer[self._error_at : self._error_at + 2] != b"\0\0":
                    raise RequestRefused(
                        f"error {int.from_bytes(answer[self._error_at : self._error_at + 2], signed=True)}"
                    )
        return self._bursts * BURST

    def one_by_one(self) -> int:
        """Sends the same number of requests one at a time and does not check the responses."""
        frame = self._burst[: len(self._burst) // BURST]
        for _ in range(self._bursts * BURST):
            self._wire.send_bytes(frame)
            self._wire.receive_bytes()
        return self._bursts * BURST


def produced(name: str, partitions: Sequence[int], value_bytes: int, acks: int = -1) -> bytes:
    """Returns a Produce request with one record for each partition."""
    batches = [
        PartitionProduceData(
            index=index,
            records=build_batch([NewRecord(None, os.urandom(value_bytes), time.time_ns() // 1_000_000)]),
        )
        for index in partitions
    ]
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=name, partition_data=batches)]
    )
    return request_bytes(request, PRODUCE_VERSION, 1, "guard")


def produce(
    partitions: Sequence[int], value_bytes: int, bursts: int, acks: int = -1
) -> Callable[[str, ExitStack], Turn]:
    def begin(bootstrap: str, stack: ExitStack) -> Turn:
        name = stack.enter_context(topic(bootstrap, len(partitions)))
        wire = stack.enter_context(Wire(bootstrap))
        # The sum covers correlation id, tags, number of topics, name with its length, number of partitions, and index.
        return Bursts(wire, produced(name, partitions, value_bytes, acks), 4 + 1 + 1 + 1 + len(name) + 1 + 4, bursts)

    return begin


def fetch_at_the_tail(value_bytes: int, bursts: int) -> Callable[[str, ExitStack], Turn]:
    """Measures fetches of a partition's last batch, without a fetch session."""

    def begin(bootstrap: str, stack: ExitStack) -> Turn:
        name = stack.enter_context(topic(bootstrap, 1))
        wire = stack.enter_context(Wire(bootstrap))
        for _ in range(2):
            wire.send_bytes(produced(name, [0], value_bytes))
            wire.receive_bytes()
        partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=name, partitions=[partition])])
        frame = request_bytes(request, FETCH_VERSION, 1, "guard")
        wire.send_bytes(frame)
        if len(wire.receive_bytes()) < value_bytes:
            raise RequestRefused("nothing was fetched")
        # The sum covers correlation id, tags and throttle time. They are followed by the error code for the complete
        # response.
        return Bursts(wire, frame, 4 + 1 + 4, bursts)

    return begin


def heartbeat(bootstrap: str, stack: ExitStack) -> Turn:
    """Measures heartbeats from the only member of a classic group."""
    wire = stack.enter_context(Wire(bootstrap))
    group_id = f"guard-{time.monotonic_ns()}"
    await_coordinator(wire, GROUP, group_id)
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while (joined := wire.ask(join, JOIN_VERSION, JoinGroupResponse)).error_code and time.monotonic() < deadline:
        time.sleep(RETRY_S)  # The coordinator is still loading.
    sync = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id)],
    )
    synced = wire.ask(sync, SYNC_VERSION, SyncGroupResponse)
    if joined.error_code or synced.error_code:
        raise RequestRefused(f"no group: errors {joined.error_code}, {synced.error_code}")
    request = HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)
    # The sum covers correlation id, tags and throttle time.
    return Bursts(wire, request_bytes(request, HEARTBEAT_VERSION, 1, "guard"), 4 + 1 + 4, 10)


def consumer_heartbeat(bootstrap: str, stack: ExitStack) -> Turn:
    """Measures heartbeats from the only member of a consumer group (KIP-848) that change nothing."""
    name = stack.enter_context(topic(bootstrap, 1))
    wire = stack.enter_context(Wire(bootstrap))
    await_coordinator(wire, GROUP, f"{name}-group")
    group = ConsumerGroup(wire, f"{name}-group", name, 1)
    group.until_stable(1)
    # The sum covers correlation id, tags and throttle time.
    return Bursts(wire, group.heartbeats(), 4 + 1 + 4, 10)


def streams_heartbeat(bootstrap: str, stack: ExitStack) -> Turn:
    """Measures heartbeats from the only member of a streams group (KIP-1071) that change nothing."""
    name = stack.enter_context(topic(bootstrap, 1))
    wire = stack.enter_context(Wire(bootstrap))
    await_coordinator(wire, GROUP, f"{name}-group")
    group = StreamsGroup(wire, f"{name}-group", name, 1)
    try:
        group.until_stable(1)
    except NotServed as reason:
        raise RequestRefused(str(reason)) from None
    # The sum covers correlation id, tags and throttle time.
    return Bursts(wire, group.heartbeats(), 4 + 1 + 4, 10)


def offset_commit(bootstrap: str, stack: ExitStack) -> Turn:
    """Measures offset commits for one partition by a client that is not a member, such as an administration tool."""
    name = stack.enter_context(topic(bootstrap, 1))
    wire = stack.enter_context(Wire(bootstrap))
    await_coordinator(wire, GROUP, f"{name}-group")
    request = OffsetCommitRequest(
        group_id=f"{name}-group",
        topics=[OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(committed_offset=7)])],
    )
    # The sum covers correlation id, tags, throttle time, number of topics, name with its length, number of partitions,
    # and index.
    error_at = 4 + 1 + 4 + 1 + 1 + len(name) + 1 + 4
    return Bursts(wire, request_bytes(request, OFFSET_COMMIT_VERSION, 1, "guard"), error_at, 4)


class TransactionalProducer:
    """A producer that uses transaction.version 2. Each Produce request also adds its partition to the transaction, and
    the EndTxn response contains the next epoch."""

    def __init__(self, wire: Wire, name: str, partition: int) -> None:
        self._wire, self._name, self._partition = wire, name, partition
        self._transactional_id = f"{name}-{partition}"
        self._producer_id, self._epoch = new_pair(wire, self._transactional_id)

    def send(self) -> None:
        records = batch_by((self._producer_id, self._epoch), 0, b"x" * 100, key=None, at_ms=time.time_ns() // 1_000_000)
        request = produce_request(
            self._name, records, partition=self._partition, transactional_id=self._transactional_id
        )
        self._wire.send(request, TRANSACTIONAL_PRODUCE_VERSION)

    def sent(self) -> None:
        answer = self._answer(ProduceRequest, TRANSACTIONAL_PRODUCE_VERSION)
        assert isinstance(answer, ProduceResponse)
        check(answer.responses[0].partition_responses[0].error_code)

    def commit(self) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        self._wire.send(request, END_TXN_VERSION)

    def committed(self) -> None:
        answer = self._answer(EndTxnRequest, END_TXN_VERSION)
        assert isinstance(answer, EndTxnResponse)
        check(answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def _answer(self, request: type[Message], version: int) -> Message:
        return self._wire.receive(request.API_KEY, version)


def check(error_code: int) -> None:
    if error_code:
        raise RequestRefused(f"error {error_code}")


def transactions(bootstrap: str, stack: ExitStack) -> Turn:
    name = stack.enter_context(topic(bootstrap, PRODUCERS))
    producers = [
        TransactionalProducer(stack.enter_context(Wire(bootstrap)), name, number) for number in range(PRODUCERS)
    ]
    steps = (
        TransactionalProducer.send,
        TransactionalProducer.sent,
        TransactionalProducer.commit,
        TransactionalProducer.committed,
    )

    def turn() -> int:
        for _ in range(TRANSACTIONS):
            for step in steps:
                for producer in producers:
                    step(producer)
        return TRANSACTIONS * len(producers)

    return turn


class ShareMember:
    """The only member of a share group, whose single partition is full of records."""

    def __init__(self, bootstrap: str, stack: ExitStack, records: int) -> None:
        self.name = stack.enter_context(topic(bootstrap, 1))
        self.wire = stack.enter_context(Wire(bootstrap))
        wire, name = self.wire, self.name
        wire.send_bytes(b"".join(produced(name, [0], 100) for _ in range(records)))
        for _ in range(records):
            wire.receive_bytes()
        self.group_id = f"{name}-group"
        self.member = joined(wire, self.group_id, name, 1, 1)[0]
        self._epoch = 0
        self.next_offset = 0  # offset of the first record not yet acquired

    def stay(self) -> None:
        """Sends a heartbeat, without which the group would remove the member during a slow row."""
        answer = self.wire.ask(heartbeat_of(self.group_id, self.name, self.member), 1, ShareGroupHeartbeatResponse)
        check(answer.error_code)

    def fetch(self, max_records: int, accepted: range = range(0)) -> range:
        """Accepts the records at the offsets in `accepted` and returns the offsets of newly acquired records."""
        batch = AcknowledgementBatch(first_offset=accepted.start, last_offset=accepted.stop - 1, acknowledge_types=[1])
        partition = ShareFetchPartition(acknowledgement_batches=[batch] if accepted else [])
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=int(CLIENT_TIMEOUT_S * 1000),
            min_bytes=1,
            max_bytes=1024 * 1024,
            max_records=max_records,
            batch_size=max_records,
            topics=[ShareFetchTopic(topic_id=self.member.topic_id, partitions=[partition])],
        )
        answer = self.wire.ask(request, SHARE_FETCH_VERSION, ShareFetchResponse)
        check(answer.error_code)
        found = answer.responses[0].partitions[0]
        check(found.error_code or found.acknowledge_error_code)
        self._epoch += 1
        return range(found.acquired_records[0].first_offset, found.acquired_records[-1].last_offset + 1)


def share_fetches(bootstrap: str, stack: ExitStack) -> Turn:
    """Measures a ShareFetch for one record that also accepts the previous record."""
    member = ShareMember(bootstrap, stack, SHARED_RECORDS)
    held = [range(0)]

    def turn() -> int:
        for _ in range(BURST):
            held[0] = member.fetch(1, held[0])
        return BURST

    return turn


def share_transactions(bootstrap: str, stack: ExitStack) -> Turn:
    """Measures a transaction that accepts one record with TxnShareAcknowledge and commits with EndTxn."""
    with Wire(bootstrap) as wire:
        finalise_share_transactions(wire)
    member = ShareMember(bootstrap, stack, SHARED_RECORDS)
    transactional_id = member.name
    pair = new_pair(member.wire, transactional_id)
    held = [range(0)]

    def turn() -> int:
        nonlocal pair
        if not held[0]:
            member.stay()
            held[0] = member.fetch(BURST)
        offset, held[0] = held[0].start, held[0][1:]
        accepted = TxnShareAcknowledgeBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
        partition = TxnShareAcknowledgePartition(acknowledgement_batches=[accepted])
        request = TxnShareAcknowledgeRequest(
            transactional_id=transactional_id,
            group_id=member.group_id,
            producer_id=pair[0],
            producer_epoch=pair[1],
            member_id=member.member.member_id,
            member_epoch=member.member.epoch,
            topics=[TxnShareAcknowledgeTopic(topic_id=member.member.topic_id, partitions=[partition])],
        )
        answer = member.wire.ask(request, 0, TxnShareAcknowledgeResponse)
        check(answer.error_code or answer.responses[0].partitions[0].error_code)
        end = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=True
        )
        ended = member.wire.ask(end, END_TXN_VERSION, EndTxnResponse)
        check(ended.error_code)
        pair = ended.producer_id, ended.producer_epoch
        return 1

    return turn


OPERATIONS = (
    Operation("Produce of 1 KiB", produce([0], 1024, 12)),
    Operation("Produce for 4 partitions", produce([0, 1, 2, 3], 100, 4)),
    Operation("Fetch of 1 KiB at the tail", fetch_at_the_tail(1024, 6)),
    Operation("Fetch of 60 KiB at the tail", fetch_at_the_tail(60 * 1024, 5)),
    Operation("transaction of version 2 × 8", transactions),
    Operation("classic heartbeat", heartbeat),
    Operation("heartbeat of a consumer group", consumer_heartbeat),
    Operation("heartbeat of a streams group", streams_heartbeat),
    Operation("OffsetCommit of a partition", offset_commit),
    Operation("ShareFetch of a record", share_fetches),
    Operation("TxnShareAcknowledge, EndTxn", share_transactions),
)
