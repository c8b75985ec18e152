"""Tests that a connection chooses versions, matches responses to requests, and respects throttling. If the connection
is lost, its requests fail with an error."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client.common.errors import ClientError, RetriableError
from odradek.client.network.backoff import Throttle
from odradek.client.network.connection import Connection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from tests.unit.client.scripted_broker import (
    NEWEST_METADATA,
    Answers,
    Request,
    ScriptedBroker,
    of_an_older_broker,
    scripted,
    usual,
)


async def connected(broker: ScriptedBroker, *, request_timeout_ms: float = 20_000) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, client_id="test", request_timeout_ms=request_timeout_ms)


def instead_of_metadata(answers: Answers) -> Answers:
    return lambda request: answers(request) if request.api_key == ApiKey.METADATA.value else usual(request)


@pytest.mark.parametrize("answers", [usual, of_an_older_broker])
async def test_requests_go_in_the_newest_version_that_both_know(answers: Answers) -> None:
    async with scripted(answers) as broker:
        connection = await connected(broker)
        await connection.ask(MetadataRequest(), MetadataResponse)
        await connection.ask(MetadataRequest(), MetadataResponse, max_version=4)
        assert [request.api_version for request in broker.requests[-2:]] == [NEWEST_METADATA, 4]
        connection.close()


async def test_a_request_that_the_broker_does_not_support_is_not_sent() -> None:
    async with scripted() as broker:
        connection = await connected(broker)
        with pytest.raises(ClientError, match="no version of END_TXN") as unknown:
            connection.ask(EndTxnRequest(), EndTxnResponse)
        with pytest.raises(ClientError, match="no version of METADATA from 12 on"):
            connection.ask(MetadataRequest(), MetadataResponse, min_version=12)
        assert unknown.value.code is ErrorCode.UNSUPPORTED_VERSION
        connection.close()


async def test_many_requests_are_under_way_at_once_and_each_gets_its_answer() -> None:
    held: list[bytes] = []

    def only_when_all_have_come(request: Request) -> bytes:
        held.append(usual(request) or b"")
        return b"".join(held) if len(held) == 100 else b""

    async with scripted(instead_of_metadata(only_when_all_have_come)) as broker:
        connection = await connected(broker)
        answers = await asyncio.gather(*(connection.ask(MetadataRequest(), MetadataResponse) for _ in range(100)))
        first = int(answers[0].cluster_id or "")
        assert [answer.cluster_id for answer in answers] == [str(first + number) for number in range(100)]
        connection.close()


@pytest.mark.parametrize("topics", [1, 2_000, 20_000])
async def test_answers_of_all_sizes_come_whole(topics: int) -> None:
    """Checks that responses of all sizes arrive complete. The largest response is several times as large as the shared
    buffer for small responses."""

    def long(request: Request) -> bytes:
        listed = [MetadataResponseTopic(name=f"topic-{number}") for number in range(topics)]
        return request.answer(MetadataResponse(topics=listed))

    async with scripted(instead_of_metadata(long)) as broker:
        connection = await connected(broker)
        pending = [connection.ask(MetadataRequest(), MetadataResponse) for _ in range(5)]
        for answer in await asyncio.gather(*pending):
            assert [topic.name for topic in answer.topics] == [f"topic-{number}" for number in range(topics)]
        connection.close()


async def test_a_connection_that_is_closed_fails_what_waits() -> None:
    async with scripted(instead_of_metadata(lambda _: None)) as broker:
        connection = await connected(broker)
        pending = [connection.ask(MetadataRequest(), MetadataResponse) for _ in range(3)]
        for each in pending:
            with pytest.raises(RetriableError, match="lost"):
                await each
        assert not connection.is_open
        with pytest.raises(RetriableError):
            connection.ask(MetadataRequest(), MetadataResponse)


async def test_a_request_that_is_not_answered_in_time_loses_the_connection() -> None:
    """Checks that a timeout also ends the connection's other requests, because their responses would be late too."""
    async with scripted(instead_of_metadata(lambda _: b"")) as broker:
        connection = await connected(broker)
        late = connection.ask(MetadataRequest(), MetadataResponse, timeout_ms=1)
        behind = connection.ask(MetadataRequest(), MetadataResponse)
        for each in (late, behind):
            with pytest.raises(RetriableError, match="did not answer METADATA in 1 ms") as error:
                await each
            assert error.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_the_response_to_a_cancelled_request_is_dropped() -> None:
    async with scripted() as broker:
        connection = await connected(broker)
        cancelled = connection.ask(MetadataRequest(), MetadataResponse)
        cancelled.cancel()
        await connection.ask(MetadataRequest(), MetadataResponse)
        assert connection.is_open
        connection.close()


def throttled(first_ms: int) -> Answers:
    """Answers like a broker with a quota that the client's first Metadata request exceeds."""
    left = [first_ms]

    def answer(request: Request) -> bytes:
        return request.answer(MetadataResponse(throttle_time_ms=left.pop() if left else 0))

    return instead_of_metadata(answer)


async def test_a_node_that_throttles_is_asked_nothing_meanwhile() -> None:
    async with scripted(throttled(600_000)) as broker:
        connection, other = await connected(broker, request_timeout_ms=20_000), await connected(broker)
        await connection.ask(MetadataRequest(), MetadataResponse)
        waits = [connection.ask(MetadataRequest(), MetadataResponse, timeout_ms=1) for _ in range(2)]
        waits[0].cancel()
        for _ in range(2):
            await other.ask(MetadataRequest(), MetadataResponse)
        assert [request.api_key for request in broker.requests].count(ApiKey.METADATA.value) == 3
        connection.close()
        with pytest.raises(RetriableError, match="was closed"):
            await waits[1]
        other.close()


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_what_waited_for_a_throttle_time_goes_out_after_it_in_order(is_awaited: bool) -> None:
    async with scripted(throttled(30)) as broker:
        connection = await connected(broker)
        first = connection.ask(MetadataRequest(), MetadataResponse)
        if is_awaited:
            await first
        else:
            first.cancel()
        later = [connection.ask(MetadataRequest(), MetadataResponse, max_version=version) for version in (5, 6, 7)]
        await asyncio.gather(*later)
        assert [request.api_version for request in broker.requests[1:]] == [NEWEST_METADATA, 5, 6, 7]
        connection.close()


def test_the_client_waits_for_a_throttle_time_only_in_versions_that_require_it() -> None:
    throttle = Throttle()
    heartbeat, member = ApiKey.HEARTBEAT.value, ApiKey.CONSUMER_GROUP_HEARTBEAT.value
    assert [
        throttle.note_throttle(heartbeat, 1, 500, 10.0),  # with this version, the broker itself waits
        throttle.note_throttle(member, 1, 500, 10.0),  # Kafka's clients do not wait after this response
        throttle.note_throttle(heartbeat, 2, 0, 10.0),
        throttle.note_throttle(heartbeat, 2, 500, 10.0),
        throttle.note_throttle(heartbeat, 2, 100, 10.25),  # shorter than the remaining time
        throttle.note_throttle(heartbeat, 2, 500, 10.25),
    ] == [False, False, False, True, False, True]
    assert [throttle.left_s(now_s) for now_s in (10.25, 10.5, 10.75, 11.0)] == [0.5, 0.25, 0.0, 0.0]


def an_answer_to_nothing(request: Request) -> bytes:
    return Request(request.api_key, request.api_version, 4711).answer(MetadataResponse())


def twice(request: Request) -> bytes:
    return request.answer(MetadataResponse()) * 2


@pytest.mark.parametrize(
    "said",
    [an_answer_to_nothing, lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", lambda _: b"\x00\x00\x00\x01x", twice],
    ids=["an answer to nothing", "HTTP", "too short", "the same answer twice"],
)
async def test_bytes_that_are_not_kafkas_protocol_close_the_connection(said: Answers) -> None:
    async with scripted(instead_of_metadata(said)) as broker:
        connection = await connected(broker)
        first = connection.ask(MetadataRequest(), MetadataResponse)
        second = connection.ask(MetadataRequest(), MetadataResponse)
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(results[1], RetriableError)
        assert "does not speak Kafka's protocol" in str(results[1])
        assert not connection.is_open


async def test_an_answer_that_cannot_be_read_loses_the_connection() -> None:
    def cut_short(request: Request) -> bytes:
        whole = request.answer(MetadataResponse(cluster_id="name"))
        return (len(whole) - 4 - 3).to_bytes(4, "big") + whole[4:-3]

    async with scripted(instead_of_metadata(cut_short)) as broker:
        connection = await connected(broker)
        with pytest.raises(RetriableError, match="does not speak"):
            await connection.ask(MetadataRequest(), MetadataResponse)
        assert not connection.is_open


async def test_where_nobody_listens_there_is_no_connection() -> None:
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:1"):
        await Connection.open("127.0.0.1", 1, client_id="test", request_timeout_ms=20_000)


async def test_a_silent_broker_times_out() -> None:
    async with scripted(lambda _: b"") as broker:
        # The error may occur before or after the connection has been established.
        with pytest.raises(RetriableError, match=str(broker.port)):
            await connected(broker, request_timeout_ms=1)
