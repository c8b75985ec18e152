"""Tests the responses to a throttled client, and the state of its connection (docs/spec/security.md#s4-3)."""

import asyncio
from typing import Any

import pytest

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.api.metered import Throttling
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.security.quotas.entities import QuotaEntity
from odradek.broker.security.quotas.metering import Metering, Windows
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk
from tests.support.peer import Peer, server_around
from tests.support.requests import produce_request

EVERYBODY: QuotaEntity = (("user", "ANONYMOUS"),)
TEST_CLIENT: QuotaEntity = (("client-id", "test"),)  # the client id of a Peer
PRODUCE_VERSION, FETCH_VERSION = 9, 12
MEMORY_BYTES = 1_000_000


class Scene(BrokerScene):
    """A broker with quotas, and one client."""

    def __init__(self, limits: ConnectionLimits | None = None, **quotas: float) -> None:
        super().__init__(FakeDisk(), "/data")
        self.topic("t")
        self.dispatcher: Dispatcher[Any] = Dispatcher(self.broker, self.clock, handler_of, fast_path_of=fast_path_of)
        self.metering = Metering(Windows(), Windows())
        self.limit(quotas)
        self.server = server_around(self.dispatcher, limits, self.timers)
        self.peer = Peer(self.server)

    def limit(self, quotas: dict[str, float], entity: QuotaEntity = EVERYBODY) -> None:
        self.metering.set_limits({entity: quotas})
        self.dispatcher.throttling = Throttling(self.metering)

    def produce(self, size_bytes: int, peer: Peer | None = None) -> ProduceResponse:
        peer = peer or self.peer
        peer.ask(produce_of(size_bytes), PRODUCE_VERSION)
        self.settle()
        response: ProduceResponse = peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
        assert response.responses[0].partition_responses[0].error_code == 0
        return response

    def fetch(self, offset: int = 0, max_bytes: int = 10_000_000, **session: Any) -> FetchResponse:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000_000)
        request = FetchRequest(
            max_wait_ms=0, max_bytes=max_bytes, topics=[FetchTopic(topic="t", partitions=[partition])], **session
        )
        self.peer.ask(request, FETCH_VERSION)
        self.settle()
        response: FetchResponse = self.peer.answer(ApiKey.FETCH, FETCH_VERSION)
        return response

    def let_pass(self, ms: int) -> None:
        self.timers.advance(ms)
        self.peer.deliver()
        self.settle()

    @property
    def end_offset(self) -> int:
        return self.partition("t").log.log_end_offset


def produce_of(size_bytes: int, acks: int = -1) -> ProduceRequest:
    return produce_request("t", build_batch([NewRecord(None, bytes(size_bytes), NOW_MS)]), acks=acks)


def has_records(response: FetchResponse) -> bool:
    return any(partition.records for topic in response.responses for partition in topic.partitions)


async def test_scenario_144_records_are_written_and_the_answer_leaves_at_once_with_the_throttle_time() -> None:
    scene = Scene(producer_byte_rate=10_000)
    assert scene.produce(75_000).throttle_time_ms == 0
    assert not scene.peer.transport.is_paused
    throttle_ms = scene.produce(75_000).throttle_time_ms
    assert 5_000 <= throttle_ms <= 5_100  # The bytes around the records also count towards the quota.
    assert scene.end_offset == 2


async def test_scenario_144_the_connection_is_not_read_during_the_throttle_time() -> None:
    scene = Scene(producer_byte_rate=10_000)
    throttle_ms = scene.produce(150_000).throttle_time_ms
    assert scene.peer.transport.is_paused
    scene.peer.ask(ApiVersionsRequest(), 0)
    scene.let_pass(throttle_ms - 1)
    assert scene.peer.frames() == []
    scene.let_pass(1)
    assert len(scene.peer.frames()) == 1
    assert not scene.peer.transport.is_paused


async def test_scenario_144_requests_that_came_along_wait_too() -> None:
    """Throttling also delays requests that the broker has already read."""
    scene = Scene(producer_byte_rate=10_000)
    scene.peer.send(request_bytes(produce_of(125_000), PRODUCE_VERSION, 1, "test"))
    big, small = produce_of(20_000), ApiVersionsRequest()
    scene.peer.send(request_bytes(big, PRODUCE_VERSION, 2, "test") + request_bytes(small, 0, 3, "test"))
    scene.settle()
    await asyncio.sleep(0)
    throttled = scene.peer.correlation_ids()
    assert throttled[0] == 1
    assert 3 not in throttled
    scene.let_pass(60_000)
    await asyncio.sleep(0)
    scene.settle()
    scene.let_pass(60_000)
    assert scene.peer.correlation_ids()[-1:] == [3]


async def test_scenario_144_without_acks_there_is_no_answer_and_the_connection_is_muted_all_the_same() -> None:
    scene = Scene(producer_byte_rate=10_000)
    scene.peer.ask(produce_of(150_000, acks=0), PRODUCE_VERSION)
    scene.settle()
    assert (scene.end_offset, scene.peer.frames()) == (1, [])
    assert scene.peer.transport.is_paused
    scene.let_pass(5_100)
    assert not scene.peer.transport.is_paused


async def test_scenario_144_other_connections_of_the_user_go_on_until_their_own_next_answer() -> None:
    scene = Scene(producer_byte_rate=10_000)
    other = Peer(scene.server)
    scene.produce(150_000)
    assert not other.transport.is_paused
    assert scene.produce(10, other).throttle_time_ms > 0
    assert other.transport.is_paused


async def test_clients_without_a_quota_take_the_fast_path_as_ever() -> None:
    scene = Scene()
    scene.limit({"producer_byte_rate": 1}, (("client-id", "other"),))
    assert scene.produce(150_000).throttle_time_ms == 0
    (route,) = scene.dispatcher.routes
    assert route.fast_path is not None
    scene.limit({"producer_byte_rate": 1}, TEST_CLIENT)
    assert scene.produce(150_000).throttle_time_ms > 0


async def test_scenario_145_too_large_a_fetch_is_answered_without_records_and_does_not_count() -> None:
    scene = Scene()
    scene.produce(150_000)
    scene.limit({"consumer_byte_rate": 10_000})
    response = scene.fetch()
    assert (response.responses, response.error_code) == ([], 0)
    assert 5_000 <= response.throttle_time_ms <= 5_100
    scene.let_pass(response.throttle_time_ms)
    scene.limit({"consumer_byte_rate": 20_000})
    response = scene.fetch()
    assert response.throttle_time_ms == 0
    assert has_records(response)


async def test_scenario_145_a_fetch_gets_no_more_than_ten_seconds_worth() -> None:
    scene = Scene()
    for _ in range(20):
        scene.produce(10_000)
    scene.limit({"consumer_byte_rate": 10_000})
    response = scene.fetch()
    # The bytes around the records slightly exceed the quota, but part of the quota has become available again by now.
    assert response.throttle_time_ms < 10
    scene.let_pass(response.throttle_time_ms)
    (partition,) = scene.fetch().responses[0].partitions
    assert len(partition.records or b"") == 100_000


async def test_scenario_145_a_throttled_fetch_does_not_advance_the_session_state() -> None:
    scene = Scene()
    scene.produce(1_000)
    opened = scene.fetch(session_epoch=0)
    session: dict[str, int] = {"session_id": opened.session_id, "session_epoch": 1}
    scene.produce(150_000)
    scene.limit({"consumer_byte_rate": 10_000})
    throttled = scene.fetch(1, **session)
    assert (throttled.session_id, throttled.responses) == (opened.session_id, [])
    scene.let_pass(throttled.throttle_time_ms)
    scene.limit({"consumer_byte_rate": 1_000_000})
    session["session_epoch"] = 2
    response = scene.fetch(1, **session)
    assert response.responses[0].partitions[0].high_watermark == 2
    assert has_records(response)


async def test_scenario_145_a_throttled_first_fetch_creates_no_session() -> None:
    scene = Scene()
    scene.produce(150_000)
    scene.limit({"consumer_byte_rate": 10_000})
    assert scene.fetch(session_epoch=0).session_id == 0
    assert len(scene.broker.fetch_sessions) == 0


@pytest.mark.parametrize("percentage", [1e-9, 1e-6])
async def test_scenario_146_time_of_threads_is_throttled_for_one_window_at_most(percentage: float) -> None:
    scene = Scene(request_percentage=percentage)
    assert scene.produce(10).throttle_time_ms == 1_000
    assert scene.peer.transport.is_paused
    scene.let_pass(1_000)
    scene.peer.ask(ApiVersionsRequest(), 1)
    assert scene.peer.answer(ApiKey.API_VERSIONS, 1).throttle_time_ms == 1_000


async def test_scenario_146_without_acks_a_request_is_exempt() -> None:
    scene = Scene(request_percentage=1e-9)
    scene.peer.ask(produce_of(10, acks=0), PRODUCE_VERSION)
    scene.settle()
    assert scene.end_offset == 1
    assert not scene.peer.transport.is_paused


async def test_scenario_146_before_a_login_nothing_counts() -> None:
    scene = Scene(request_percentage=1e-9)
    (connection,) = scene.server.connections()
    connection.is_authenticated = False
    scene.peer.ask(ApiVersionsRequest(), 1)
    assert scene.peer.answer(ApiKey.API_VERSIONS, 1).throttle_time_ms == 0
    assert not scene.peer.transport.is_paused


async def test_scenario_146_the_larger_of_two_throttle_times_is_returned() -> None:
    scene = Scene(request_percentage=1e-9, producer_byte_rate=10_000)
    assert scene.produce(10).throttle_time_ms == 1_000
    scene.let_pass(1_000)
    assert scene.produce(150_000).throttle_time_ms >= 4_000


async def test_a_muted_connection_keeps_no_memory_from_others() -> None:
    scene = Scene(ConnectionLimits(queued_max_request_bytes=MEMORY_BYTES), producer_byte_rate=10_000)
    half = request_bytes(produce_of(900_000), PRODUCE_VERSION, 2, "test")[:10_000]
    first = request_bytes(produce_of(110_000), PRODUCE_VERSION, 1, "test")
    scene.peer.send(first[:100_000])
    scene.peer.send(first[100_000:] + half)
    scene.settle()
    assert scene.peer.correlation_ids() == [1]
    assert scene.peer.transport.is_paused
    assert scene.server.memory is not None
    assert scene.server.memory.reserve(MEMORY_BYTES)
    scene.server.memory.release(MEMORY_BYTES)
    scene.let_pass(60_000)
    assert not scene.peer.transport.is_paused


async def test_a_muted_peer_that_goes_leaves_no_timer_behind() -> None:
    scene = Scene(producer_byte_rate=10_000)
    scene.produce(150_000)
    assert scene.timers.armed()
    scene.peer.hang_up()
    assert scene.timers.armed() == []


async def test_a_broker_that_stops_does_not_wait_for_muted_connections() -> None:
    scene = Scene(producer_byte_rate=10_000)
    scene.produce(150_000)
    scene.peer.connection.drain()
    assert scene.peer.is_disconnected
