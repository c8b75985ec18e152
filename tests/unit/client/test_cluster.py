"""Tests that a client discovers the brokers of a cluster, sends requests to them, and rediscovers them when they
change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from odradek.client.common.errors import ClientError, FatalError, RetriableError
from odradek.client.common.values import TopicPartition
from odradek.client.network.cluster import Cluster, CoordinatorType, Leader, parse_addresses
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID
from tests.unit.client.scripted_broker import Request, ScriptedBroker, scripted, usual, versions

E = ErrorCode
WITH_TOPIC_IDS = 12  # first version of Metadata with topic ids


def a_cluster(*ports: int) -> Cluster:
    return Cluster([f"127.0.0.1:{port}" for port in ports], client_id="test", retry_backoff_ms=0.01)


def of_one_broker(broker: ScriptedBroker, *topics: MetadataResponseTopic) -> MetadataResponse:
    node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
    return MetadataResponse(brokers=[node], topics=list(topics), cluster_id="the cluster")


def a_topic(
    *leaders: int, code: ErrorCode = E.NONE, leader_epoch: int = 7, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name="t",
        topic_id=topic_id,
        error_code=code.value,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=leader_epoch)
            for index, leader in enumerate(leaders)
        ],
    )


def saying(broker: ScriptedBroker, answers: dict[ApiKey, Callable[[Request], bytes | None]]) -> None:
    broker.answers = lambda request: answers.get(ApiKey(request.api_key), usual)(request)


def each_in_turn(*topics: MetadataResponseTopic) -> Iterator[MetadataResponseTopic]:
    """Yields the topics one at a time and then repeats the last one forever."""
    return chain(topics, repeat(topics[-1]))


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (["a:1", " b "], [("a", 1), ("b", 9092)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses_are_read(servers: str | list[str], expected: list[tuple[str, int]]) -> None:
    assert parse_addresses(servers) == expected


@pytest.mark.parametrize("servers", ["", ",", [], "a:b", ":9092"])
def test_an_invalid_address_is_refused(servers: str | list[str]) -> None:
    with pytest.raises(ValueError, match="address of a broker"):
        parse_addresses(servers)


async def test_the_first_bootstrap_server_that_answers_will_do() -> None:
    async with scripted() as broker:
        saying(broker, {ApiKey.METADATA: lambda request: request.answer(of_one_broker(broker))})
        cluster = a_cluster(1, broker.port)
        await cluster.start()
        assert (cluster.node_ids, cluster.cluster_id) == ([1], "the cluster")
        await cluster.close()


async def test_an_error_names_all_bootstrap_servers_if_none_answers() -> None:
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
        await a_cluster(1, 2).start()


async def test_a_topic_is_asked_for_until_it_is_there() -> None:
    said = each_in_turn(
        a_topic(code=E.LEADER_NOT_AVAILABLE), a_topic(code=E.UNKNOWN_TOPIC_OR_PARTITION), a_topic(1, -1)
    )
    async with scripted() as broker:
        saying(broker, {ApiKey.METADATA: lambda request: request.answer(of_one_broker(broker, next(said)))})
        cluster = a_cluster(broker.port)
        assert len((await cluster.topic("t")).leaders) == 2
        assert cluster.leader(TopicPartition("t", 0)) == Leader(1, 7)
        assert cluster.leader(TopicPartition("t", 1)) == Leader(None, 7)
        assert cluster.leader(TopicPartition("t", 2)) is None
        await cluster.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, RetriableError),
        (E.INVALID_TOPIC_EXCEPTION, ClientError),
        (E.TOPIC_AUTHORIZATION_FAILED, FatalError),
    ],
)
async def test_an_unavailable_topic_raises_an_error(code: ErrorCode, kind: type[ClientError]) -> None:
    async with scripted() as broker:
        saying(broker, {ApiKey.METADATA: lambda request: request.answer(of_one_broker(broker, a_topic(code=code)))})
        cluster = a_cluster(broker.port)
        with pytest.raises(kind) as error:
            await cluster.topic("t", timeout_ms=0)
        assert error.value.code is code
        await cluster.close()


async def test_known_metadata_of_a_topic_stays_if_a_refresh_returns_an_error() -> None:
    said = each_in_turn(a_topic(1), a_topic(code=E.LEADER_NOT_AVAILABLE))
    async with scripted() as broker:
        saying(broker, {ApiKey.METADATA: lambda request: request.answer(of_one_broker(broker, next(said)))})
        cluster = a_cluster(broker.port)
        await cluster.topic("t")
        await cluster.refresh()
        assert cluster.leader(TopicPartition("t", 0)) == Leader(1, 7)
        await cluster.close()


async def test_find_coordinator_is_repeated_until_it_succeeds_and_its_result_is_cached() -> None:
    codes = iter([E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NONE])

    def coordinator(request: Request) -> bytes:
        answer = FindCoordinatorResponse(
            error_code=next(codes).value, node_id=1, host="127.0.0.1", port=broker.port, error_message=None
        )
        return request.answer(answer)

    async with scripted() as broker:
        saying(broker, {ApiKey.FIND_COORDINATOR: coordinator})
        cluster = a_cluster(broker.port)
        for _ in range(3):
            assert await cluster.coordinator("id", CoordinatorType.TRANSACTION) == 1
        cluster.forget_coordinator("id", CoordinatorType.TRANSACTION)
        with pytest.raises(RetriableError, match="lost"):  # the coordinator answered only three requests
            await cluster.coordinator("id", CoordinatorType.TRANSACTION, timeout_ms=0)
        await cluster.close()


async def test_a_forbidden_find_coordinator_raises_an_error_at_once() -> None:
    refused = FindCoordinatorResponse(error_code=E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.value, error_message=None)
    async with scripted() as broker:
        saying(broker, {ApiKey.FIND_COORDINATOR: lambda request: request.answer(refused)})
        cluster = a_cluster(broker.port)
        with pytest.raises(FatalError):
            await cluster.coordinator("id", CoordinatorType.TRANSACTION)
        await cluster.close()


async def test_a_connection_that_was_lost_is_opened_again() -> None:
    drops = iter([True, False])

    def metadata(request: Request) -> bytes | None:
        return None if next(drops, False) else request.answer(of_one_broker(broker))

    async with scripted() as broker:
        saying(broker, {ApiKey.METADATA: metadata})
        cluster = a_cluster(broker.port)
        with pytest.raises(RetriableError):
            await cluster.start()
        await cluster.refresh(())
        assert cluster.node_ids == [1]
        await cluster.close()
        with pytest.raises(RetriableError, match="closed"):
            await cluster.refresh(())


async def test_metadata_of_an_older_leader_epoch_moves_no_leader_back() -> None:
    """Checks that metadata with an older leader epoch is ignored (KIP-320), unless the topic was recreated and
    therefore has new epochs."""
    topics = each_in_turn(
        a_topic(1, leader_epoch=7),
        a_topic(2, leader_epoch=6),
        a_topic(2, 3, leader_epoch=6, topic_id=b"made anew 123456"),
    )
    async with scripted() as broker:
        answers: dict[ApiKey, Callable[[Request], bytes | None]] = {
            ApiKey.API_VERSIONS: lambda request: request.answer(versions(WITH_TOPIC_IDS)),
            ApiKey.METADATA: lambda request: request.answer(of_one_broker(broker, next(topics))),
        }
        saying(broker, answers)
        cluster = a_cluster(broker.port)
        await cluster.start()
        await cluster.topic("t")
        await cluster.refresh(["t"])
        assert cluster.leader(TopicPartition("t", 0)) == Leader(1, 7)
        await cluster.refresh(["t"])
        assert cluster.leader(TopicPartition("t", 0)) == Leader(2, 6)
        assert cluster.leader(TopicPartition("t", 1)) == Leader(3, 6)
        await cluster.close()


async def test_a_leader_from_a_response_is_adopted_if_it_is_newer_and_its_address_is_known() -> None:
    """Checks that the client adopts a new leader from a response if the leader's epoch is newer and its address is
    known (KIP-951)."""
    async with scripted() as broker:
        saying(broker, {ApiKey.METADATA: lambda request: request.answer(of_one_broker(broker, a_topic(-1, 1)))})
        cluster = a_cluster(broker.port)
        await cluster.start()
        await cluster.topic("t")
        for partition, leader in ((0, Leader(1, 8)), (1, Leader(1, 6)), (1, Leader(9, 8)), (2, Leader(1, 8))):
            cluster.adopt_leader(TopicPartition("t", partition), leader)
        assert cluster.leader(TopicPartition("t", 0)) == Leader(1, 8)
        assert cluster.leader(TopicPartition("t", 1)) == Leader(1, 7)
        assert cluster.leader(TopicPartition("t", 2)) is None
        await cluster.close()
