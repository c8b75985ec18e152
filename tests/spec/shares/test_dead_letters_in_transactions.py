"""Tests records that members reject in a producer's transaction, in a group with a dead-letter queue
(docs/spec/dead-letter-queues.md#s6)."""

import pytest

from odradek.protocol.errors import ErrorCode
from tests.support.dead_letter_scene import QUEUE, REJECTED, TOO_MANY, DeadLetterScene

ACCEPT, RELEASE, REJECT = 1, 2, 3
NONE = ErrorCode.NONE


@pytest.fixture
def scene() -> DeadLetterScene:
    return DeadLetterScene()


def test_records_rejected_in_a_transaction_are_copied_when_it_commits(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert producer.codes(member, {topic: [(0, 1, REJECT), (2, 9, ACCEPT)]}) == [NONE]
    assert scene.copied() == []
    assert producer.commit() is NONE
    scene.settle()
    assert [(each.offset, each.told) for each in scene.copies()] == [(0, (1, REJECTED)), (1, (1, REJECTED))]
    assert scene.stored(topic).start_offset == 10


def test_records_rejected_in_an_aborted_transaction_are_never_copied(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    producer.codes(member, {topic: [(0, 9, REJECT)]})
    assert producer.abort() is NONE
    scene.settle()
    assert scene.copied() == []
    assert member.ack_code(topic, (0, 9, ACCEPT)) is NONE


def test_an_abort_copies_records_that_reached_the_delivery_limit(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 2)
    first = scene.joined("A")
    first.acquire(topic)
    first.ack_code(topic, (0, 1, RELEASE))
    member, producer = scene.joined("B"), scene.producer()
    assert member.acquire(topic) == [(0, 1, 2)]
    producer.codes(member, {topic: [(0, 1, ACCEPT)]})
    member.fetch(epoch=-1)
    assert producer.abort() is NONE
    scene.settle()
    assert [each.told for each in scene.copies()] == [(2, TOO_MANY)] * 2


def test_after_a_crash_between_marker_and_copy_the_next_load_copies(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    producer.codes(member, {topic: [(0, 1, REJECT)]})
    scene.dead_letters.stop()
    assert producer.commit() is NONE
    scene.kill()
    assert scene.stored_batches(topic)[0] == (0, 1, 3, 1)
    assert scene.copied() == []
    assert scene.joined("B").acquire(topic) == [(2, 9, 1)]
    assert scene.copied() == [0, 1]
    assert scene.stored(topic).start_offset == 2


def test_a_commit_that_no_leader_sees_is_copied_by_the_next_one(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    producer.codes(member, {topic: [(0, 1, REJECT)]})
    member.disconnect()
    scene.kill()
    assert producer.commit() is NONE
    scene.settle()
    assert scene.copied() == []
    assert scene.joined("B").acquire(topic) == [(2, 9, 2)]
    assert scene.copied() == [0, 1]


def test_a_repeated_rejection_is_accepted(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    for _ in range(2):
        assert producer.codes(member, {topic: [(0, 9, REJECT)]}) == [NONE]
    assert producer.commit() is NONE
    scene.settle()
    assert scene.copied() == list(range(10))


def test_a_topic_that_the_group_names_before_the_commit_gets_the_copies(scene: DeadLetterScene) -> None:
    scene.set_group(errors_deadletterqueue_topic_name="")
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    producer.codes(member, {topic: [(0, 1, REJECT)]})
    scene.set_group(errors_deadletterqueue_topic_name=QUEUE)
    assert producer.commit() is NONE
    scene.settle()
    assert scene.copied() == [0, 1]


def test_a_topic_that_the_group_names_no_longer_at_the_commit_gets_none(scene: DeadLetterScene) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    producer.codes(member, {topic: [(0, 9, REJECT)]})
    scene.set_group(errors_deadletterqueue_topic_name="")
    assert producer.commit() is NONE
    scene.settle()
    assert scene.copied() == []
    assert scene.stored(topic).start_offset == 10
    assert scene.stored_batches(topic) == []
