"""Tests that topics are created either completely or not at all if the process dies at any disk call.

A thread creates the topics' directories, and the topics are published in slices. After a restart, either all topics of
the request exist with all partitions online, or neither the topics nor their directories exist.
"""

from contextlib import suppress

from odradek.broker.metadata.replaying import SLICE_RECORDS
from odradek.broker.metadata.topics import NewTopic
from odradek.broker.runtime.waiting import Deferred
from odradek.files.names import partition_of
from tests.simulation.simulated_broker import DATA
from tests.simulation.stage import Stage
from tests.support.fake_disk import FakeDisk, ProcessCrashed

LARGE = SLICE_RECORDS // 3  # Creating four topics with this number of partitions takes two slices.
TOPICS = {"t0": LARGE, "t1": LARGE, "t2": LARGE, "t3": LARGE, "t4": 1}


def create(stage: Stage) -> Deferred[object]:
    answer = stage.broker.auto_creation.create([NewTopic(name, count, 1) for name, count in TOPICS.items()])
    stage.wait(1_000)
    return answer  # type: ignore[return-value]


def calls_of_creation() -> int:
    stage = Stage()
    before = stage.disk.calls
    assert create(stage).is_done
    return stage.disk.calls - before


CALLS = calls_of_creation()


def test_each_partition_takes_a_directory_and_a_file_and_all_topics_together_one_sync() -> None:
    write_and_sync, make_create_and_write = 2, 3
    assert write_and_sync + make_create_and_write * sum(TOPICS.values()) == CALLS


def test_topics_are_whole_or_not_there_after_a_crash() -> None:
    middle = CALLS // 2
    with_power_failure = {1, 2, 3, middle, middle + 1, middle + 2, CALLS + 1}
    # A partition takes three calls, so every seventh call reaches each of the three in turn.
    for call in with_power_failure.union(range(4, CALLS, 7)):
        stage = Stage()
        stage.disk.crash_before(call)
        with suppress(ProcessCrashed):
            create(stage)
        stage.broker.kill()
        check_restart(f"kill before call {call}", stage.disk.after_kill(), stage)
        if call in with_power_failure:
            for state in stage.disk.after_power_failure(seed=call, random_states=1):
                check_restart(f"{state.name} before call {call}", state.disk, stage)


def check_restart(name: str, disk: FakeDisk, before: Stage) -> None:
    broker = Stage(disk, before.time.now_ms()).broker
    known = broker.metadata.image.topics
    found = {topic: len(known[topic].partitions) for topic in TOPICS if topic in known}
    assert found in ({}, TOPICS), name
    assert broker.partitions.offline == set(), name
    for topic, count in found.items():
        for index in range(count):
            assert broker.partition(topic, index).topic_id == known[topic].topic_id, name
    entries = disk.list_directory(DATA)
    assert {each for each in entries if each.endswith("-stray")} == set(), name
    directories = {topic for each in entries if (parts := partition_of(each)) is not None for topic in [parts[0]]}
    assert directories & TOPICS.keys() == found.keys(), name
