"""Measures how fast the members of a share group fetch and acknowledge records, with and without transactions.

The members run in shares.c, which uses very little CPU time itself. This module sends the heartbeats with which they
join the group. Each member then fetches the partitions assigned to it.
"""

import json
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.clients import CLIENT_TIMEOUT_S
from bench.coordinators import GROUP, await_coordinator
from bench.native import compiled
from bench.subjects import Subject
from bench.topics import topic
from bench.transactions import PLACE, SOME_EPOCH, SOME_ID, new_pair
from odradek.protocol import kip_1289
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest
from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from tests.support.requests import produce_request
from tests.support.wire import Wire

PARTITIONS = 8
VALUE = b"x" * 100
RECORDS_PER_BATCH = 100
PRODUCES_IN_FLIGHT = 8
MAX_RECORDS = 500  # records per ShareFetch, the clients' default
# Few enough that each record is acknowledged before its lock expires, even on a busy machine.
MAX_RECORDS_STAGED_ONE_BY_ONE = 100
MAX_BYTES = 50 * 1024 * 1024
MAX_WAIT_MS = 500
SOME_SESSION_EPOCH = 0x5A5B5C5D  # placeholder in requests that shares.c replaces with the session epoch
SESSION_EPOCH = struct.Struct(">i")
IMPLICIT, EXPLICIT, TRANSACTIONAL, TOGETHER = range(4)  # the modes of shares.c
HEARTBEAT_VERSION, FETCH_VERSION, ACKNOWLEDGE_VERSION, STAGE_VERSION, END_TXN_VERSION = 1, 2, 2, 0, 5
GROUP_CONFIGS, SET = 32, 0  # resource type and operation of IncrementalAlterConfigs
UPGRADE = 1
ROUND_S = 0.02  # pause between heartbeats while members wait for their assignment


@dataclass(slots=True)
class Member:
    member_id: str
    epoch: int = 0
    topic_id: bytes = b""
    partitions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ShareConsumers:
    """Measures members that read an eight-partition topic to its end, at most 500 records at a time, and accept every
    record.

    is_explicit         whether a member acknowledges each fetch with a ShareAcknowledge that has a type for each
                        record, instead of with the next ShareFetch
    records             number of measured records; a quarter of this number is read first, as a warm-up
    is_in_transactions  like `is_explicit`, but with a transaction (TxnShareAcknowledge and EndTxn) instead of each
                        ShareAcknowledge; the load is the same, so that the two modes can be compared
    """

    members: int
    is_explicit: bool
    records: int
    is_in_transactions: bool = False

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns the records per second and the broker's CPU time per record in µs."""
        measured = int(self.records * share)
        mode = EXPLICIT if self.is_explicit else IMPLICIT
        with topic(subject.bootstrap, PARTITIONS) as name, Wire(subject.bootstrap) as wire:
            if self.is_in_transactions:
                mode = TOGETHER
                finalise_share_transactions(wire)
            fill(wire, name, measured + measured // 2)
            found = _run(subject, wire, name, mode, self.members, measured // 4, measured)
        return {
            "records_s": found["done"] / found["seconds"],
            "cpu_us_per_record": found["cpu_seconds"] / found["done"] * 1e6,
        }


@dataclass(frozen=True, slots=True)
class ShareTransactions:
    """Measures members that accept each record in a separate transaction, with TxnShareAcknowledge and EndTxn
    (KIP-1289)."""

    members: int
    transactions: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns the transactions per second and the broker's CPU time per transaction in µs."""
        measured = int(self.transactions * share)
        with topic(subject.bootstrap, PARTITIONS) as name, Wire(subject.bootstrap) as wire:
            finalise_share_transactions(wire)
            fill(wire, name, 2 * measured + self.members * MAX_RECORDS)
            found = _run(subject, wire, name, TRANSACTIONAL, self.members, measured // 4, measured)
        return {
            "transactions_s": found["done"] / found["seconds"],
            "cpu_us_per_transaction": found["cpu_seconds"] / found["done"] * 1e6,
        }


def finalise_share_transactions(wire: Wire) -> None:
    update = FeatureUpdateKey(feature=kip_1289.FEATURE, max_version_level=kip_1289.FEATURE_LEVEL, upgrade_type=UPGRADE)
    answer = wire.ask(UpdateFeaturesRequest(feature_updates=[update]), 1, UpdateFeaturesResponse)
    if answer.error_code:
        raise RuntimeError(f"{kip_1289.FEATURE} was refused: {answer.error_message}")


def fill(wire: Wire, name: str, records: int) -> None:
    """Writes at least `records` records to the partitions, in batches of a hundred."""
    now_ms = time.time_ns() // 1_000_000
    batch = bytes(build_batch([NewRecord(None, VALUE, now_ms)] * RECORDS_PER_BATCH))
    requests = [produce_request(name, batch, partition=index) for index in range(PARTITIONS)]
    count = -(-records // RECORDS_PER_BATCH // PARTITIONS) * PARTITIONS
    for number in range(count + PRODUCES_IN_FLIGHT):
        if number < count:
            wire.send(requests[number % PARTITIONS], 9)
        if number >= PRODUCES_IN_FLIGHT:
            answer = wire.receive(ProduceRequest.API_KEY, 9)
            assert isinstance(answer, ProduceResponse)
            if answer.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"records were refused: {answer.responses[0].partition_responses[0]}")


def joined(wire: Wire, group_id: str, name: str, count: int, partitions: int) -> list[Member]:
    """Has members join a share group and returns them once all the topic's partitions are assigned."""
    await_coordinator(wire, GROUP, group_id)
    read_from_the_start(wire, group_id)
    members = [Member(str(uuid.uuid4())) for _ in range(count)]
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while time.monotonic() < deadline:
        for member in members:
            answer = wire.ask(heartbeat_of(group_id, name, member), HEARTBEAT_VERSION, ShareGroupHeartbeatResponse)
            if answer.error_code:
                time.sleep(ROUND_S)  # The coordinator is still loading.
                continue
            member.epoch = answer.member_epoch
            if answer.assignment is not None:
                assigned = answer.assignment.topic_partitions
                member.topic_id = assigned[0].topic_id if assigned else b""
                member.partitions = assigned[0].partitions if assigned else ()
        covered = {index for member in members for index in member.partitions}
        if len(covered) == partitions and all(one.partitions and one.epoch == members[0].epoch for one in members):
            return members
        time.sleep(ROUND_S)
    raise RuntimeError(f"the partitions of {name} were not all assigned")


def heartbeat_of(group_id: str, name: str, member: Member) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=member.epoch,
        subscribed_topic_names=None if member.epoch else [name],
    )


def read_from_the_start(wire: Wire, group_id: str) -> None:
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP_CONFIGS, resource_name=group_id, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = wire.ask(request, 1, IncrementalAlterConfigsResponse)
    if answer.responses[0].error_code:
        raise RuntimeError(f"the group's settings were refused: {answer.responses[0].error_message}")


def _run(
    subject: Subject, wire: Wire, name: str, mode: int, count: int, before: int, measured: int
) -> Mapping[str, float]:
    group_id = f"{name}-group"
    members = joined(wire, group_id, name, count, PARTITIONS)
    with tempfile.NamedTemporaryFile() as file:
        file.write(struct.pack("=4i", mode, count, before, measured) + members[0].topic_id)
        for number, member in enumerate(members):
            transactional_id = f"{name}-{number}"
            pair = new_pair(wire, transactional_id) if mode in (TRANSACTIONAL, TOGETHER) else (0, 0)
            partitions = member.partitions
            file.write(struct.pack(f"={1 + len(partitions)}i", len(partitions), *partitions))
            file.write(struct.pack("=qi", *pair) + _heads(group_id, member, transactional_id, mode))
        file.flush()
        words = [compiled("shares"), subject.broker.port, file.name, subject.pid]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _heads(group_id: str, member: Member, transactional_id: str, mode: int) -> bytes:
    """Returns the beginning of each request sent by shares.c, up to the topics."""
    max_records = MAX_RECORDS_STAGED_ONE_BY_ONE if mode == TRANSACTIONAL else MAX_RECORDS
    fetch = ShareFetchRequest(
        group_id=group_id,
        member_id=member.member_id,
        share_session_epoch=SOME_SESSION_EPOCH,
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        max_records=max_records,
        batch_size=max_records,
    )
    acknowledge = ShareAcknowledgeRequest(
        group_id=group_id, member_id=member.member_id, share_session_epoch=SOME_SESSION_EPOCH
    )
    stage = TxnShareAcknowledgeRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=SOME_ID,
        producer_epoch=SOME_EPOCH,
        member_id=member.member_id,
        member_epoch=member.epoch,
    )
    end = EndTxnRequest(
        transactional_id=transactional_id, producer_id=SOME_ID, producer_epoch=SOME_EPOCH, committed=True
    )
    session_epoch, pair = SESSION_EPOCH.pack(SOME_SESSION_EPOCH), PLACE.pack(SOME_ID, SOME_EPOCH)
    # The heads end before the number of topics. Each omitted field is one byte long: the number of topics, the number
    # of forgotten topics in ShareFetch, and the tags.
    return b"".join(
        (
            _head(fetch, FETCH_VERSION, session_epoch, left_out=3),
            _head(acknowledge, ACKNOWLEDGE_VERSION, session_epoch, left_out=2),
            _head(stage, STAGE_VERSION, pair, left_out=2),
            _head(end, END_TXN_VERSION, pair, left_out=0),
        )
    )


def _head(request: Message, version: int, replaced: bytes, *, left_out: int) -> bytes:
    frame = request_bytes(request, version, 1, "bench")[4:]
    head = frame[: len(frame) - left_out]
    return struct.pack("=2i", len(head), head.index(replaced)) + head
