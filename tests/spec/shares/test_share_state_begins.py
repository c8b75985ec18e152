"""Tests that a share partition's state is initialised exactly once (docs/spec/share-groups.md#s2-3).

The group coordinator and the share coordinator each have their own log, and a power failure can remove the end of
either log.
"""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import Member

ACCEPT = 1


@pytest.fixture
def broker() -> ShareBroker:
    broker = ShareBroker()
    broker.topic(GROUP_OFFSETS, 1)
    broker.topic("T")
    broker.set_group(share_auto_offset_reset="earliest")
    broker.produce("T", 10)
    return broker


def assigned(broker: ShareBroker, member_id: str) -> Member:
    member = broker.member(member_id)
    member.heartbeat(0, ["T"])
    for _ in range(4):
        broker.sleep(1_000)
        member.heartbeat()
    return member


def synced(broker: ShareBroker) -> int:
    return sum(call.startswith("sync") and SHARE_GROUP_STATE in call and ".log" in call for call in broker.disk.log)


def test_new_share_state_is_synced_before_the_group_records_it_whatever_the_settings(broker: ShareBroker) -> None:
    assert synced(broker) == 0
    assigned(broker, "A")
    assert synced(broker) == 1


def test_a_group_that_has_forgotten_its_share_state_does_not_initialise_it_again(broker: ShareBroker) -> None:
    a = assigned(broker, "A")
    topic = broker.image.topics["T"].topic_id
    assert a.acquire(topic) == [(0, 9, 1)]
    assert a.ack_code(topic, (0, 4, ACCEPT)) is ErrorCode.NONE
    broker.delete_topic(GROUP_OFFSETS)
    broker.topic(GROUP_OFFSETS, 1)
    b = assigned(broker, "B")
    a.disconnect()
    assert b.acquire(topic) == [(5, 9, 2)]


def test_state_whose_deletion_was_interrupted_is_replaced(broker: ShareBroker) -> None:
    a = assigned(broker, "A")
    topic = broker.image.topics["T"].topic_id
    assert a.acquire(topic) == [(0, 9, 1)]
    assert a.ack_code(topic, (0, 4, ACCEPT)) is ErrorCode.NONE
    a.disconnect()
    a.heartbeat(-1)
    broker.persister.delete_refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="T")]
    a.ask(DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics), 0)
    assert broker.stored(topic).is_there
    assert assigned(broker, "B").acquire(topic) == [(0, 9, 1)]
