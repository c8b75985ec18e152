"""Tests offsets that a transaction commits for a classic group. The offsets are pending until the transaction's marker
arrives, and then take effect together or not at all."""

from odradek.broker.groups.records import offset_commit_record, offset_tombstone
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.support.group_scene import GROUP, Scene

PRODUCER, OTHER_PRODUCER = 7, 8


class TransactionScene(Scene):
    """A scene whose log can contain a producer's TxnOffsetCommit records and its transaction's marker."""

    def commit_in_transaction(self, offset: int, producer_id: int = PRODUCER, *, partition: int = 0) -> None:
        record = offset_commit_record(GROUP, "t", partition, OffsetCommitValue(offset=offset, commit_timestamp=1))
        self.core.replay(record, len(self.log), producer_id)
        # `Scene.log` holds records outside transactions, so this empty record only occupies an offset.
        self.log.append((b"", None))

    def end_transaction(self, producer_id: int = PRODUCER, *, committed: bool) -> None:
        self.log.append((b"", None))
        self.core.replay_marker(producer_id, 0, committed=committed)


def test_a_pending_offset_is_not_returned() -> None:
    scene = TransactionScene()
    scene.commit(3)
    scene.commit_in_transaction(10)
    assert scene.fetch() == 3
    assert scene.fetch_all() == {("t", 0): 3}


def test_a_fetch_of_stable_offsets_is_refused_while_offsets_are_pending() -> None:
    scene = TransactionScene()
    scene.commit(3)
    scene.commit_in_transaction(10)
    assert scene.fetch(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert scene.fetch(partition=1, require_stable=True) == -1


def test_a_committed_transactions_offset_counts() -> None:
    scene = TransactionScene()
    scene.commit(3)
    scene.commit_in_transaction(10)
    scene.end_transaction(committed=True)
    assert scene.fetch(require_stable=True) == 10


def test_an_offset_of_an_aborted_transaction_is_dropped() -> None:
    scene = TransactionScene()
    scene.commit(3)
    scene.commit_in_transaction(10)
    scene.end_transaction(committed=False)
    assert scene.fetch(require_stable=True) == 3


def test_a_plain_commit_that_came_later_wins_over_the_transactions() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    scene.commit(12)
    scene.end_transaction(committed=True)
    assert scene.fetch(require_stable=True) == 12


def test_of_two_transactions_the_later_written_offset_wins_whichever_ends_first() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10, PRODUCER)
    scene.commit_in_transaction(11, OTHER_PRODUCER)
    scene.end_transaction(OTHER_PRODUCER, committed=True)
    assert scene.fetch(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    scene.end_transaction(PRODUCER, committed=True)
    assert scene.fetch(require_stable=True) == 11


def test_within_a_transaction_the_last_offset_counts() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    scene.commit_in_transaction(11)
    scene.end_transaction(committed=True)
    assert scene.fetch() == 11


def test_a_marker_of_a_producer_without_offsets_here_does_nothing() -> None:
    scene = TransactionScene()
    scene.commit(3)
    scene.end_transaction(committed=True)
    assert scene.fetch(require_stable=True) == 3


def test_an_offset_of_a_transaction_creates_the_group() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    assert scene.groups() == {GROUP: "Empty"}


def test_a_tombstone_takes_pending_offsets_with_it() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    scene.core.replay(offset_tombstone(GROUP, "t", 0), len(scene.log), -1)
    assert scene.fetch(require_stable=True) == -1
    scene.end_transaction(committed=True)
    assert scene.fetch(require_stable=True) == -1


def test_deleting_the_group_deletes_its_pending_offsets() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    scene.commit_in_transaction(10, partition=1)
    assert scene.delete_group() is ErrorCode.NONE
    scene.end_transaction(committed=True)
    assert scene.fetch_all() == {}


def test_an_offset_may_be_deleted_while_it_is_pending() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    assert scene.delete_offset() is ErrorCode.NONE
    assert scene.fetch(require_stable=True) == -1


def test_neither_a_pending_offset_nor_its_group_expires() -> None:
    scene = TransactionScene()
    scene.commit_in_transaction(10)
    scene.now_ms += 2 * scene.config.offsets_retention_ms
    scene.expire()
    scene.end_transaction(committed=True)
    assert scene.fetch() == 10
