"""Tests dual-write blocks that consume. A group's offsets and a share group's acknowledgements take effect when the
block commits."""

import pytest

from odradek.client import AcknowledgedRange, AcknowledgeType, ConsumerGroupMetadata, ShareGroupMetadata, TopicPartition
from odradek.dualwrite import IllegalUse
from odradek.dualwrite.transaction import Transaction
from tests.support.dual_write_scene import AnyScene, Trouble, trouble
from tests.support.fake_two_phase import FaultTime, ResponseLost

JOBS = TopicPartition("jobs", 0)
GROUP, SHARE_GROUP = ConsumerGroupMetadata("g", 1, "m"), ShareGroupMetadata("s", "m", 1)
REJECTED = {JOBS: [AcknowledgedRange(5, 9, AcknowledgeType.REJECT)]}


def consume(transaction: Transaction) -> None:  # type: ignore[type-arg]
    transaction.send_offsets({JOBS: 5}, GROUP)
    transaction.acknowledge(REJECTED, SHARE_GROUP)


CONSUMED = ["jobs-0 at 5", "REJECT 5 to 9"]


def test_consumed_offsets_are_committed_with_the_rows_and_messages_of_the_block(scene: AnyScene) -> None:
    dual = scene.recovered()
    scene.order(dual, "tea", then=consume)
    assert (scene.rows, scene.messages) == (["tea"], [*CONSUMED, "tea"])


def test_a_block_that_only_consumes_is_a_transaction_too(scene: AnyScene) -> None:
    dual = scene.recovered()
    with dual.transaction() as transaction:
        scene.insert(transaction, "tea")
        consume(transaction)
        assert scene.messages == []
    assert (scene.rows, scene.messages, scene.stored_state) == (["tea"], CONSUMED, "1000:0")


def test_a_block_that_raises_has_consumed_nothing(scene: AnyScene) -> None:
    dual = scene.recovered()

    def then(transaction: Transaction) -> None:  # type: ignore[type-arg]
        consume(transaction)
        trouble(transaction)

    with pytest.raises(Trouble):
        scene.order(dual, "tea", then=then)
    assert (scene.rows, scene.messages) == ([], [])
    assert [value and value.decode() for value in scene.kafka.aborted] == CONSUMED
    scene.order(dual, "milk", then=consume)
    assert scene.messages == [*CONSUMED, "milk"]


@pytest.mark.parametrize("when", FaultTime)
@pytest.mark.parametrize("call", ["send_offsets", "acknowledge"])
def test_offsets_that_cannot_be_committed_roll_back_the_rows(scene: AnyScene, call: str, when: FaultTime) -> None:
    dual = scene.recovered()
    scene.kafka.faults[call] = when
    with pytest.raises(ResponseLost):
        scene.order(dual, "tea", then=consume)
    assert (scene.rows, scene.messages) == ([], [])
    scene.order(dual, "milk", then=consume)
    assert (scene.rows, scene.messages) == (["milk"], [*CONSUMED, "milk"])


def test_after_its_block_a_transaction_consumes_nothing(scene: AnyScene) -> None:
    dual = scene.recovered()
    with dual.transaction() as transaction:
        pass
    with pytest.raises(IllegalUse):
        transaction.send_offsets({JOBS: 5}, GROUP)
    with pytest.raises(IllegalUse):
        transaction.acknowledge(REJECTED, SHARE_GROUP)
    assert scene.messages == []
