"""Tests that a coordinator whose loading was cancelled at any `await` serves no requests, and that the next load is
complete.

Coordinators use `await` only while they load.
"""

from asyncio import CancelledError
from collections.abc import Coroutine
from typing import Any

import pytest

from odradek.broker.coordinators.shard_records import RECORDS_BETWEEN_BREAKS
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.transactional_clients import ID, Clients


class Awaiting(Clients):
    """A broker and its clients. After a restart of the coordinator, the test itself runs the loading coroutine step by
    step."""

    def __init__(self) -> None:
        super().__init__()
        self.loading: list[Coroutine[Any, Any, None]] = []

    def start_step_by_step(self) -> Coroutine[Any, Any, None]:
        self.spawn = self.loading.append
        self.restart_coordinator()
        return self.loading.pop()


def decided_behind_many_others() -> tuple[Awaiting, tuple[int, int]]:
    """Returns a broker with a committed transaction whose marker is missing, and the transaction's producer id and
    epoch. The transaction is at the end of a log that takes several turns to load."""
    scene = Awaiting()
    pair = scene.init()
    for _ in range(2 * RECORDS_BETWEEN_BREAKS // 3):
        scene.add(pair)
        pair = scene.commit(pair)
    scene.produce(pair, 0, b"decided")
    scene.markers.refusals = {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    scene.commit(pair)
    scene.markers.refusals = {}
    return scene, pair


def awaits() -> int:
    loading = decided_behind_many_others()[0].start_step_by_step()
    steps = 0
    while True:
        try:
            loading.send(None)
        except StopIteration:
            return steps
        steps += 1


AWAITS = 2  # A third step completes the load of this log.


@pytest.mark.parametrize("after", range(AWAITS + 1))
def test_a_load_that_is_cancelled_serves_nothing_and_the_next_one_everything(after: int) -> None:
    scene, pair = decided_behind_many_others()
    loading = scene.start_step_by_step()
    for _ in range(after):
        loading.send(None)
    with pytest.raises(CancelledError):
        loading.throw(CancelledError())
    with pytest.raises(KafkaError) as refused:
        scene.end(pair, commit=True)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.read(committed=True) == []
    again = scene.restarted(killed=True)
    assert again.transactions.describe(ID).transaction_state == "CompleteCommit"
    assert again.read(committed=True) == [b"decided"]


def test_the_table_lists_every_await_of_loading() -> None:
    assert awaits() == AWAITS
