"""Tests that a block's rows and messages become visible together or not at all, and that an exception reports how the
block ended."""

import pytest

from odradek.dualwrite import IllegalUse, NotRecovered, Phase, Step
from tests.support.dual_write_scene import TOPIC, AnyScene, ProcessKilled, Trouble, killed_at, trouble
from tests.support.fake_two_phase import FaultTime


def test_rows_and_messages_are_there_after_the_block_and_not_before(scene: AnyScene) -> None:
    dual = scene.recovered()
    with dual.transaction() as transaction:
        scene.insert(transaction, "tea")
        transaction.send(TOPIC, b"tea")
        assert (scene.rows, scene.messages) == ([], [])
    assert (scene.rows, scene.messages) == (["tea"], ["tea"])
    assert scene.stored_state == "1000:0"


def test_several_transactions_follow_each_other_over_one_connection_and_one_producer(scene: AnyScene) -> None:
    connections = []
    dual = scene.recovered()
    for name in ("tea", "milk", "sugar"):
        with dual.transaction() as transaction:
            connections.append(transaction.connection)
            transaction.executemany(f"INSERT INTO orders (name) VALUES ({scene.parameter})", [(name,)])
            transaction.send(TOPIC, name.encode())
    assert scene.rows == scene.messages == ["tea", "milk", "sugar"]
    assert len(set(map(id, connections))) == 1
    assert scene.stored_state == "1000:2"


def test_a_block_that_raises_leaves_nothing_and_the_next_one_may_begin(scene: AnyScene) -> None:
    dual = scene.recovered()
    with pytest.raises(Trouble):
        scene.order(dual, "tea", then=trouble)
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["milk"]


def test_a_block_that_raises_while_the_broker_is_away_has_rolled_back_its_rows_and_asks_for_recovery(
    scene: AnyScene,
) -> None:
    def lose_the_broker(_: object) -> None:
        scene.kafka.is_away = True
        raise Trouble

    dual = scene.recovered()
    with pytest.raises(Trouble):
        scene.order(dual, "tea", then=lose_the_broker)
    assert dual.phase is Phase.UNRECOVERED
    with pytest.raises(IllegalUse, match="recover"):
        scene.order(dual, "milk")
    with pytest.raises(NotRecovered):
        dual.recover()
    scene.kafka.is_away = False
    dual.recover()
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["milk"]


def test_blocks_do_not_nest_and_an_attempt_rolls_the_outer_one_back(scene: AnyScene) -> None:
    dual = scene.recovered()
    for call in (lambda _: scene.order(dual, "milk"), lambda _: dual.recover(), lambda _: dual.close()):
        with pytest.raises(IllegalUse):
            scene.order(dual, "tea", then=call)
    assert (scene.rows, scene.messages) == ([], [])
    scene.order(dual, "sugar")
    assert scene.rows == scene.messages == ["sugar"]


def test_a_transaction_cannot_be_used_after_its_block(scene: AnyScene) -> None:
    dual = scene.recovered()
    with dual.transaction() as transaction:
        pass
    with pytest.raises(IllegalUse):
        scene.insert(transaction, "tea")
    with pytest.raises(IllegalUse):
        transaction.send(TOPIC, b"tea")


def test_there_is_no_transaction_before_recovery_and_none_after_close(scene: AnyScene) -> None:
    dual = scene.dual()
    with pytest.raises(IllegalUse, match="recover"):
        scene.order(dual, "tea")
    with dual:
        scene.order(dual, "tea")
    with pytest.raises(IllegalUse):
        scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["tea"]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_block_that_ends_the_database_transaction_raises_an_error_and_sends_nothing(
    scene: AnyScene, ending: str
) -> None:
    dual = scene.recovered()
    with pytest.raises(IllegalUse, match="ended the database transaction"):
        scene.order(dual, "tea", then=lambda transaction: transaction.execute(ending))
    assert (scene.rows, scene.messages) == (["tea"] if ending == "COMMIT" else [], [])
    scene.order(dual, "milk")
    assert scene.messages == ["milk"]


# --- Blocks that send nothing.


def test_a_block_without_messages_commits_its_rows_and_asks_nothing_of_the_broker(scene: AnyScene) -> None:
    dual = scene.recovered()
    scene.kafka.is_away = True
    with dual.transaction() as transaction:
        scene.insert(transaction, "tea")
    assert (scene.rows, scene.messages) == (["tea"], [])


def test_the_state_of_a_block_without_messages_is_not_stored_since_the_next_transaction_has_the_same(
    scene: AnyScene,
) -> None:
    """Checks that the first block, which sends nothing, stores no state. Otherwise, recovery would mistake the second
    block's messages for the first block's and commit them."""
    dual = scene.recovered(killed_at((Step.PREPARE_KAFKA, FaultTime.AFTER)))
    with dual.transaction() as transaction:
        scene.insert(transaction, "tea")
    with pytest.raises(ProcessKilled):
        scene.order(dual, "milk")
    scene.kill()
    assert scene.kafka.open is not None
    scene.recovered()
    assert (scene.rows, scene.messages) == (["tea"], [])
