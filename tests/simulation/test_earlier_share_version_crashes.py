"""Tests that the first start on an earlier Odradek's directory loses no staged acknowledgement, even if it crashes
before any disk call.

The directory contains acknowledgements pending under `share.version` 2. They remain pending until their transaction
ends, and take effect if and only if it commits (ADR 35).
"""

from contextlib import suppress

import pytest

from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.simulation.stage import Stage
from tests.support.earlier_directories import GROUP, PENDING, QUEUE, TRANSACTIONAL_ID, on_fake_disk
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.share_state_as_kafka import reported_batches

LEFT_MS = 1_795_903_900_000  # just after the earlier Odradek stopped
OWN = "odradek.share.transactions"
ACCEPTED = 2


def opened(disk: FakeDisk) -> Stage:
    return Stage(disk, LEFT_MS, is_two_phase=True)


def calls_of_a_start() -> int:
    disk = on_fake_disk(PENDING)
    before = disk.calls
    opened(disk)
    return disk.calls - before


CALLS = calls_of_a_start()


def pending_count(stage: Stage) -> int:
    return stage.broker.share_coordinator.pending_count()


def end(stage: Stage, *, commit: bool) -> None:
    transaction = stage.broker.transactions.describe(TRANSACTIONAL_ID)
    request = EndTxnRequest(
        transactional_id=TRANSACTIONAL_ID,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=commit,
    )
    assert ErrorCode(stage.ask(request, 5).error_code) is ErrorCode.NONE
    stage.wait(1_000)


def is_accepted(stage: Stage) -> bool:
    """Returns whether records 3 to 5 appear accepted to a reader that ignores markers and private tags."""
    broker = stage.broker
    broker.share_coordinator.repeat_markers()
    stage.wait(100)
    key = SharePartitionKey(GROUP, broker.metadata.image.topics[QUEUE].topic_id, 0)
    log = broker.partition(SHARE_GROUP_STATE, broker.share_coordinator.partition_for(key)).log
    return any(first <= 3 and last >= 5 and state == ACCEPTED for first, last, state, _ in reported_batches(log, key))


@pytest.mark.parametrize("half_write", [False, True], ids=["before", "halfway"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_crash_at_any_call_of_the_first_start_loses_nothing_that_is_staged(call: int, half_write: bool) -> None:
    disk = on_fake_disk(PENDING)
    disk.crash_before(call, half_write=half_write)
    with suppress(ProcessCrashed, KafkaError):
        opened(disk)
    for number, state in enumerate([disk.after_kill(), *(each.disk for each in disk.after_power_failure(seed=call))]):
        stage = opened(state)
        assert stage.broker.metadata.image.features[OWN] == 1
        assert stage.broker.metadata.image.features["share.version"] == 2
        assert pending_count(stage) == 3
        is_commit = (call + number) % 2 == 0
        end(stage, commit=is_commit)
        assert pending_count(stage) == 0
        assert is_accepted(stage) is is_commit


@pytest.mark.parametrize("commit", [True, False])
def test_w4_a_marker_resolves_staged_acknowledgements_although_the_feature_is_0(commit: bool) -> None:
    stage = opened(on_fake_disk(PENDING))
    stage.broker.metadata.image.features.pop(OWN)
    assert pending_count(stage) == 3
    end(stage, commit=commit)
    assert pending_count(stage) == 0
    assert is_accepted(stage) is commit
