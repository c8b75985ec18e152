"""Tests that a dead-letter queue contains the rejected records and no others after a kill or a power failure before any
disk call.

At the end, the queue contains every record whose rejection was acknowledged, possibly twice. Every record in the queue
must really have been rejected: no member has processed it, and its rejection was not in an aborted transaction. Rules:
docs/spec/dead-letter-queues.md#s2, #s6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.supported_features import SHARE_VERSION, SHARE_VERSION_DEAD_LETTERS
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.batch_header import batches
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import records_of
from tests.simulation.share_requests import ACCEPT, REJECT, RELEASE, Record
from tests.simulation.share_stage import LOCK_MS, QUEUE, TOPIC, ShareStage, ShareStory
from tests.simulation.test_share_crashes import (
    Crash,
    Event,
    Play,
    acknowledges,
    crashes,
    disconnects,
    killed,
    stages_and_goes,
    waits,
    without_power,
    works,
)
from tests.support.fake_disk import CrashState, FakeDisk

DEAD_LETTERS = "dlq.tasks"

PLAIN: list[Event] = [
    acknowledges("A", 2, REJECT),
    acknowledges("A", 1),
    acknowledges("B", 1, RELEASE),
    acknowledges("B", 1, REJECT),
    disconnects("A"),
    waits(LOCK_MS + 100),
    disconnects("B"),
    acknowledges("B", 1, ACCEPT),
    acknowledges("A", 2, REJECT),
]
IN_TRANSACTIONS: list[Event] = [
    works("A", 1, kind=REJECT),
    works("A", 2, commits=False, kind=REJECT),
    works("B", 1),
    works("B", 1, kind=REJECT, twice=True),
    stages_and_goes("B", 1),
    waits(1_500),
    works("A", 1, kind=REJECT),
]


def setting(resource: ConfigResourceType, of: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.value, resource_name=of, name=name, value=value)


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    """Returns the disk of a broker that was killed after it had configured the group's dead-letter queue."""
    stage = ShareStage(is_durable=True)
    stage.broker.auto_creation.create([NewTopic(DEAD_LETTERS, 1, 1)])
    group, topic = ConfigResourceType.GROUP, ConfigResourceType.TOPIC
    stage.broker.metadata.commit(
        [
            FeatureLevelRecord(name=SHARE_VERSION, feature_level=SHARE_VERSION_DEAD_LETTERS),
            setting(group, QUEUE, "errors.deadletterqueue.topic.name", DEAD_LETTERS),
            setting(group, QUEUE, "errors.deadletterqueue.copy.record.enable", "true"),
            setting(topic, DEAD_LETTERS, "errors.deadletterqueue.group.enable", "true"),
        ]
    )
    stage.wait(500)
    stage.broker.kill()
    return stage.disk.after_kill()


def copied(story: ShareStory) -> dict[Record, int]:
    """Returns the number of copies of each record in the queue."""
    found: dict[Record, int] = {}
    log = story.stage.broker.partition(DEAD_LETTERS, 0).log
    for chunk in log.reader.read_cold(0, max_bytes=1 << 20).chunks:
        for position, _ in batches(chunk):
            for record in records_of(chunk, position):
                headers = {name.removeprefix("__dlq.errors."): text for name, text in record.headers}
                assert (headers["topic"], headers["group"]) == (TOPIC.encode(), QUEUE.encode())
                assert record.value == b"task"
                source = int(headers["partition"] or b""), int(headers["offset"] or b"")
                found[source] = found.get(source, 0) + 1
    return found


def check_queue(story: ShareStory) -> None:
    known, found = story.knowledge, copied(story)
    assert known.given_up <= found.keys(), f"{known.given_up - found.keys()} were rejected, and are not in the queue"
    assert found.keys() <= known.perhaps_given_up, f"{found.keys() - known.perhaps_given_up} were never rejected"
    assert not found.keys() & known.used, f"{found.keys() & known.used} are in the queue, and were accepted"
    often = {record: count for record, count in found.items() if count > 1 + known.restarts}
    assert not often, f"{often} are in the queue too often"


def continue_story(events: list[Event], crash: Crash, *, repeats_end: bool) -> None:
    """Continues the story after a crash.

    repeats_end  whether the producer repeats an unanswered EndTxn; otherwise a new producer takes over
    """
    story = crash.moment.continue_story(crash.disk)
    play = Play(events, story, crash.event)
    try:
        if events is IN_TRANSACTIONS:
            ending = story.knowledge.ending
            if ending is None or not repeats_end or not story.end(commit=ending):
                story.begin()
        play.to_the_end()
        for name in story.knowledge.members:
            story.disconnect(name)
        story.stage.wait(2 * LOCK_MS)
        # This fetch loads records in the state ARCHIVING, if no other request has loaded them.
        story.fetch("last", 1)
        story.stage.wait(2 * LOCK_MS)
        check_queue(story)
    except AssertionError as failure:
        raise AssertionError(f"{crash.state}, in event {crash.event}; in event {play.event}: {failure}") from failure
    finally:
        story.stage.broker.kill()


@pytest.mark.parametrize("states", [killed, without_power], ids=["killed", "without power"])
@pytest.mark.parametrize("events", [PLAIN, IN_TRANSACTIONS], ids=["plain", "in transactions"])
def test_exactly_the_dead_letters_are_in_the_queue(
    events: list[Event], states: Callable[[FakeDisk, int], Iterator[CrashState]], prepared: FakeDisk
) -> None:
    found = crashes(events, prepared, states)
    assert len(found) >= 40
    for number, crash in enumerate(found):
        continue_story(events, crash, repeats_end=number % 2 == 0)
