"""Attacks whose requests have hostile contents (patterns, names, ranges), rather than long arrays.

Each attack runs on a separate broker with suitable settings, because it leaves topics, ids or groups behind.
`bench.hostile` measures another client of this broker.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeAlias

from bench.coordinators import GROUP, await_coordinator
from bench.lifecycle import free_port
from bench.shares import finalise_share_transactions, joined
from bench.transactions import new_pair
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.support.certificates import Authority
from tests.support.requests import produce_request
from tests.support.wire import ClosedByBroker, Wire

PATIENCE_S = 120.0
HOSTILE_PATTERN = ".*a.{%d}"  # matching it needs an automaton whose sets of active states never repeat
STATES = 100
NAMES = 2_000
NAME_LENGTH = 240
LONG_TEXT = 30_000
WIDE_TOPICS = 4
WIDE_PARTITIONS = 5_000
LOCKS = 10_000
FORBIDDEN = 80_000
SHARE_KEY = 2  # key type of FindCoordinator
HANDSHAKES = 20
# A backtracking matcher would try 2^60 paths through BACKTRACKED_NAME.
RULE = "RULE:CN=((a+)+)b/$1/"
BACKTRACKED_NAME = "a" * 60

Run: TypeAlias = Callable[[], None]
# An attack's arguments are a broker's address and the number of seconds that the attack may take.
Prepare: TypeAlias = Callable[[str, float], Run]


@dataclass(frozen=True, slots=True)
class Content:
    """An attack whose requests have hostile contents.

    settings  the broker's settings
    is_ours   whether Kafka is left out because it does not support the request or cannot be set up in the same way
    """

    name: str
    prepare: Prepare
    settings: Mapping[str, object] = field(default_factory=dict)
    is_ours: bool = False


def contents() -> Iterator[Content]:
    yield Content("FindCoordinator, 20 keys of 32,000 colons", colons)
    yield Content(f"10 groups with expressions such as `.*a.{{{STATES}}}`, {NAMES:,} topics", subscriptions)
    yield Content(
        f"10 joins of streams groups whose topologies read {NAMES:,} topics",
        topologies,
        {"group.streams.initial.rebalance.delay.ms": 0},
        is_ours=True,
    )
    for delay_ms, what in ((0, "10 joins"), (100, "10 initial delays")):
        yield Content(
            f"{what} of streams groups with {WIDE_TOPICS * WIDE_PARTITIONS:,} tasks",
            many_tasks,
            {
                "group.streams.initial.rebalance.delay.ms": delay_ms,
                "group.streams.assignment.interval.ms": 0,
            },
            is_ours=True,
        )
    yield Content(f"ListTransactions by such a pattern, 10 times, {NAMES:,} ids", listings)
    yield Content("quotas of 20 users whose names are 30,000 backslashes", backslashes)
    locks = "group.share.{}partition.max.record.locks"
    yield Content(
        f"TxnShareAcknowledge of every second of {LOCKS:,} locks",
        alternating,
        {locks.format("max."): LOCKS, locks.format(""): LOCKS},
        is_ours=True,
    )
    yield Content(
        f"Metadata of {FORBIDDEN:,} forbidden topics",
        forbidden,
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        is_ours=True,
    )
    tls = certificates()
    yield Content(
        f"{HANDSHAKES} handshakes of a certificate for {RULE}",
        handshakes,
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{tls.plain_port},SSL://127.0.0.1:{tls.port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": tls.folder / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": tls.folder / "ca.pem",
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": RULE,
        },
        is_ours=True,
    )


def names() -> list[str]:
    choice = Random(37)
    return ["".join(choice.choice("ab") for _ in range(NAME_LENGTH)) for _ in range(NAMES)]


def colons(bootstrap: str, seconds: float) -> Run:
    with Wire(bootstrap, timeout_s=PATIENCE_S) as first:  # The first request makes the broker create the state topic.
        first.ask(FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=["g"]), 6)

    def run() -> None:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            for _ in range(20):
                wire.ask(FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=[":" * 32_000]), 6)

    return run


def subscriptions(bootstrap: str, seconds: float) -> Run:
    create_topics(bootstrap)

    def run() -> None:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            for number in range(10):
                request = ConsumerGroupHeartbeatRequest(
                    group_id=f"hostile-{number}",
                    member_id=str(uuid.uuid4()),
                    member_epoch=0,
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_regex=HOSTILE_PATTERN % (STATES + number),
                    topic_partitions=[],
                )
                wire.ask(request, 1)
            time.sleep(max(seconds, 3.0))  # The broker resolves the expressions in the background.

    return run


def create_topics(bootstrap: str) -> None:
    with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
        await_coordinator(wire, GROUP, "hostile-0")
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names()]
        for begin in range(0, NAMES, 500):
            request = CreateTopicsRequest(topics=topics[begin : begin + 500], timeout_ms=60_000)
            answer = wire.ask(request, 7, CreateTopicsResponse)
            if any(each.error_code for each in answer.topics):
                raise RuntimeError(f"the topics were refused: {answer.topics[0].error_message}")


def topologies(bootstrap: str, seconds: float) -> Run:
    create_topics(bootstrap)
    topology = Topology(
        subtopologies=[
            Subtopology(subtopology_id=str(number), source_topics=[name]) for number, name in enumerate(names())
        ]
    )

    def run() -> None:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            for number in range(10):
                join_streams_group(wire, f"hostile-{number}", topology)

    return run


def many_tasks(bootstrap: str, seconds: float) -> Run:
    """Attacks with two-member groups that read a few topics with very many partitions."""
    with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
        await_coordinator(wire, GROUP, "hostile-0")
        for number in range(WIDE_TOPICS):
            topic = CreatableTopic(name=f"wide{number}", num_partitions=WIDE_PARTITIONS, replication_factor=1)
            answer = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)
            if answer.topics[0].error_code:
                raise RuntimeError(f"the topic was refused: {answer.topics[0].error_message}")
    topology = Topology(
        subtopologies=[
            Subtopology(subtopology_id=str(number), source_topics=[f"wide{number}"]) for number in range(WIDE_TOPICS)
        ]
    )

    def run() -> None:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            for number in range(10):
                for _ in range(2):
                    member_id, epoch = join_streams_group(wire, f"hostile-{number}", topology)
                await_tasks(wire, f"hostile-{number}", member_id, epoch)

    return run


def join_streams_group(wire: Wire, group_id: str, topology: Topology) -> tuple[str, int]:
    """Joins a streams group and returns the new member's id and epoch."""
    member_id = str(uuid.uuid4())
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        process_id=member_id,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    answer = wire.ask(request, 1, StreamsGroupHeartbeatResponse)
    if answer.error_code:
        raise RuntimeError(f"the member was refused: {answer.error_message}")
    return member_id, answer.member_epoch


def await_tasks(wire: Wire, group_id: str, member_id: str, epoch: int) -> None:
    """Waits until the streams group has computed its target assignment, which happens after its initial delay."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        request = StreamsGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
        answer = wire.ask(request, 1, StreamsGroupHeartbeatResponse)
        if answer.error_code:
            raise RuntimeError(f"a heartbeat was refused: {answer.error_message}")
        if not answer.status:
            return
        epoch = answer.member_epoch
        time.sleep(0.05)
    raise RuntimeError("the group's tasks were not assigned")


def listings(bootstrap: str, seconds: float) -> Run:
    with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
        for name in names():
            new_pair(wire, name)

    def run() -> None:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            for number in range(10):
                wire.ask(ListTransactionsRequest(transactional_id_pattern=HOSTILE_PATTERN % (STATES + number)), 2)

    return run


def backslashes(bootstrap: str, seconds: float) -> Run:
    def run() -> None:
        entity = [EntityData(entity_type="\\" * LONG_TEXT, entity_name="\\" * LONG_TEXT)]
        entry = EntryData(entity=entity, ops=[OpData(key="\\" * LONG_TEXT, value=1.0)])
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            for _ in range(20):
                wire.ask(AlterClientQuotasRequest(entries=[entry]), 1)

    return run


def alternating(bootstrap: str, seconds: float) -> Run:
    """Attacks with alternating acknowledgements. All records are acquired beforehand, so that only the acknowledgements
    and the end of their transaction are measured."""
    name, group_id, transactional_id = "alternating", "hostile", "pay"
    wire = Wire(bootstrap, timeout_s=PATIENCE_S)
    finalise_share_transactions(wire)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    batch = bytes(build_batch([NewRecord(None, b"x", time.time_ns() // 1_000_000)] * 1_000))
    for _ in range(LOCKS // 1_000):
        wire.ask(produce_request(name, batch), 9)
    (member,) = joined(wire, group_id, name, 1, 1)
    acquired = epoch = 0
    while acquired < LOCKS:
        request = ShareFetchRequest(
            group_id=group_id,
            member_id=member.member_id,
            share_session_epoch=epoch,
            max_wait_ms=500,
            max_records=1_000,
            batch_size=1_000,
            topics=[FetchTopic(topic_id=member.topic_id, partitions=[FetchPartition(partition_index=0)])],
        )
        answer = wire.ask(request, 1, ShareFetchResponse)
        if answer.error_code:
            raise RuntimeError(f"the ShareFetch was refused: {answer.error_message}")
        epoch += 1
        for partition in (each for topic in answer.responses for each in topic.partitions):
            acquired += sum(each.last_offset - each.first_offset + 1 for each in partition.acquired_records)
    producer_id, producer_epoch = new_pair(wire, transactional_id)
    batches = [
        TxnShareAcknowledgeBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
        for offset in range(0, LOCKS, 2)
    ]
    acknowledged = TxnShareAcknowledgePartition(partition_index=0, acknowledgement_batches=batches)

    def run() -> None:
        request = TxnShareAcknowledgeRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            member_id=member.member_id,
            member_epoch=member.epoch,
            topics=[TxnShareAcknowledgeTopic(topic_id=member.topic_id, partitions=[acknowledged])],
        )
        answer = wire.ask(request, 0, TxnShareAcknowledgeResponse)
        wire.close()
        codes = [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]
        if any(codes):
            raise RuntimeError(f"the TxnShareAcknowledge was refused: {codes}")

    return run


def forbidden(bootstrap: str, seconds: float) -> Run:
    topics = [MetadataRequestTopic(name=f"{'x' * NAME_LENGTH}-{number}") for number in range(FORBIDDEN)]

    def run() -> None:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            wire.ask(MetadataRequest(topics=topics), 12)

    return run


@dataclass(frozen=True, slots=True)
class Tls:
    folder: Path
    plain_port: int
    port: int


@cache
def certificates() -> Tls:
    """Creates a CA, the broker's certificate, and a certificate for a client whose name makes the rule backtrack."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-bench-hostile-"))
    authority = Authority.make("Bench CA")
    (folder / "ca.pem").write_text(authority.pem)
    authority.issue("broker").write(folder / "broker.pem")
    authority.issue(BACKTRACKED_NAME).write(folder / "client.pem")
    return Tls(folder, free_port(), free_port())


def handshakes(bootstrap: str, seconds: float) -> Run:
    tls = certificates()
    context = ssl.create_default_context(cafile=tls.folder / "ca.pem")
    context.load_cert_chain(tls.folder / "client.pem")
    api_versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    request = request_bytes(api_versions, 3, 1, "hostile")

    def run() -> None:
        for _ in range(HANDSHAKES):
            with (
                suppress(OSError, ClosedByBroker),
                socket.create_connection(("127.0.0.1", tls.port), PATIENCE_S) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
            ):
                secured.sendall(request)
                # The call returns when the broker closes the connection, which it does because no rule matches this
                # subject.
                secured.recv(1)

    return run
