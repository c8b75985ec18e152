"""Tests that a new topic with the name of a deleted topic is empty at first, even if the process dies at any disk call.

The old topic is deleted during a transaction. `__transaction_state` and partition directories identify topics by name.
Even if the crash leaves them out of date, the new topic gets no records from the old topic and no marker of its
transaction. The transaction still ends.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pytest

from odradek.broker.metadata.topics import NewTopic, delete_topics
from odradek.protocol.batch_header import batches
from odradek.protocol.errors import ErrorCode
from tests.simulation.stage import P0, P1, Stage
from tests.simulation.test_transaction_crashes import open_everywhere
from tests.support.fake_disk import FakeDisk, ProcessCrashed

Steps = Callable[[Stage], None]


def delete(stage: Stage) -> None:
    ask_for_deletion(stage)
    stage.wait(100)


def delete_and_create_anew(stage: Stage) -> None:
    ask_for_deletion(stage)
    create_anew(stage)


def ask_for_deletion(stage: Stage) -> None:
    stage.broker.metadata.submit(lambda image: delete_topics(image, [("orders", bytes(16))]))


def create_anew(stage: Stage) -> None:
    stage.broker.auto_creation.create([NewTopic("orders", 2, 1)])
    stage.wait(100)


def opened() -> tuple[Stage, bytes]:
    """Returns a stage with a transaction that has records in both partitions, and the topic's id."""
    stage = Stage()
    open_everywhere(stage)
    return stage, stage.broker.metadata.image.topics["orders"].topic_id


@cache
def calls_of(steps: Steps) -> int:
    stage, _ = opened()
    before = stage.disk.calls
    steps(stage)
    return stage.disk.calls - before


def disks_after_a_crash(stage: Stage) -> Iterator[tuple[str, FakeDisk]]:
    stage.broker.kill()
    yield "kill", stage.disk.after_kill()
    for state in stage.disk.after_power_failure(seed=1):
        yield state.name, state.disk


@pytest.mark.parametrize("steps", [delete, delete_and_create_anew])
def test_the_namesake_of_a_deleted_topic_begins_empty_whenever_the_process_dies(steps: Steps) -> None:
    for call in range(1, calls_of(steps) + 2):
        stage, old_id = opened()
        stage.disk.crash_before(call)
        with suppress(ProcessCrashed):
            steps(stage)
        for name, disk in disks_after_a_crash(stage):
            check_restart(f"crash before call {call}, {name}", disk, stage, old_id)


def batches_in(stage: Stage) -> int:
    logs = [stage.broker.partition(*each).log for each in (P0, P1)]
    portions = [portion for log in logs for portion in log.reader.scan(0, log.log_end_offset)]
    return sum(1 for portion in portions for _ in batches(portion))


def check_restart(name: str, disk: FakeDisk, before: Stage, old_id: bytes) -> None:
    again = Stage(disk, before.time.now_ms())
    topics = again.broker.metadata.image.topics
    is_deleted = "orders" not in topics or topics["orders"].topic_id != old_id
    if "orders" not in topics:
        create_anew(again)
    again.pair = before.pair
    assert again.end(committed=True) is ErrorCode.NONE, name
    again.wait(1_000)
    assert again.states() == {"CompleteCommit"}, name
    if is_deleted:
        assert batches_in(again) == 0, f"{name}: something of the old topic in the new one"
    else:
        assert again.readable() == ["a", "b"], f"{name}: the topic was not deleted, and its transaction not finished"
    again.broker.kill()
