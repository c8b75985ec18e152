"""Tests ShareFetch from a client that exceeds its quota (docs/spec/security.md#s4-3).

Kafka acquires records for the client but omits them from the response. Odradek leaves the records available to other
clients.
"""

from typing import Any

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.api.metered import Throttling
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.security.quotas.metering import Metering, Windows
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from tests.support.peer import Peer, server_around
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import partitions_of

VERSION = 2


def share_fetch(
    scene: ShareBroker, peer: Peer, topic_id: bytes, epoch: int, member_id: str = "a"
) -> tuple[list[tuple[int, int]], int]:
    """Sends a ShareFetch. Returns the acquired ranges and the throttle time."""
    topics = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])] if epoch == 0 else []
    request = ShareFetchRequest(
        group_id=GROUP,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_000_000,
        max_records=10,
        batch_size=10,
        topics=topics,
    )
    peer.ask(request, VERSION)
    scene.settle()
    answer: Any = peer.answer(ApiKey.SHARE_FETCH, VERSION)
    assert answer.error_code == 0
    acquired = [
        (each.first_offset, each.last_offset)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]
    return acquired, answer.throttle_time_ms


async def test_scenario_145_records_are_sent_or_not_acquired() -> None:
    scene = ShareBroker()
    topic_id = scene.shared_topic("T", 10, 10, 10)
    dispatcher: Dispatcher[Any] = Dispatcher(scene.broker, scene.clock, handler_of)
    metering = Metering(Windows(), Windows())
    metering.set_limits({(("client-id", "test"),): {"consumer_byte_rate": 10}})
    dispatcher.throttling = Throttling(metering)
    server = server_around(dispatcher, None, scene.timers)
    peer, other = Peer(server), Peer(server)

    acquired, throttle_ms = share_fetch(scene, peer, topic_id, 0)
    assert acquired == [(0, 9)]
    assert throttle_ms > 5_000
    assert peer.transport.is_paused
    assert share_fetch(scene, other, topic_id, 0, "b")[0] == []
    of_another_client = scene.member("c").fetch(topic_id, max_records=10)
    assert [each[:2] for each in partitions_of(of_another_client)[topic_id, 0].acquired] == [(10, 19)]
    scene.timers.advance(60_000)
    assert share_fetch(scene, other, topic_id, 1, "b")[0] != []
