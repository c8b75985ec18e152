"""Bugs of other brokers in what a transaction coordinator decides; each comment names the cause."""

import pytest

from odradek.broker.transactions.tables import TxnState
from tests.support.transaction_scene import (
    COORDINATOR_EPOCH,
    MAX,
    NEW_PID,
    P0,
    P1,
    PID,
    TIMEOUT_MS,
    E,
    S,
    Scene,
    given,
    refused,
    txn,
)

LAST = MAX - 1  # the last epoch that a producer may hold
DAY_MS = 24 * 60 * 60 * 1000


def timed_out(scene: Scene) -> Scene:
    """The open transaction was open for too long, and its abort is complete."""
    scene.advance(TIMEOUT_MS + 1)
    assert scene.time_out() == ["pay"]
    scene.write_markers()
    return scene


# KAFKA-20785: the commit that lost the race against a timeout was answered with INVALID_TXN_STATE, which ends a client;
# fenced, it only begins anew.
def test_known_bug_02_a_commit_that_lost_against_the_timeout_is_fenced() -> None:
    scene = timed_out(given(txn(S.ONGOING, (PID, 1))))
    with refused(E.PRODUCER_FENCED):
        scene.commit5((PID, 1))


# apache/kafka 21506, 21469: no further bump fits behind epoch 32766, so the timeout's abort always failed; and an id
# that had got to 32767 was lost.
@pytest.mark.parametrize("epoch", [LAST, MAX])
def test_known_bug_03_a_timeout_at_the_last_epochs_aborts_into_a_new_producer_id(epoch: int) -> None:
    scene = given(txn(S.ONGOING, (PID, epoch)))
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    (owed,) = scene.write_markers()
    assert owed.producer_epoch == MAX
    assert scene.state == (S.COMPLETE_ABORT, NEW_PID, 0)
    assert scene.init() == (NEW_PID, 1)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_known_bug_03_the_very_last_epoch_is_not_the_end_of_an_id(state: TxnState) -> None:
    assert given(txn(state, (PID, MAX))).init() == (NEW_PID, 0)


# apache/kafka 19910: who took over an open transaction bumped for the fence and again for the abort; at epoch 32766 the
# second bump made it negative.
def test_known_bug_04_taking_over_an_open_transaction_bumps_once_for_the_abort() -> None:
    scene = given(txn(S.ONGOING, (PID, 5)))
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    (owed,) = scene.write_markers()
    assert owed.producer_epoch == 6
    assert scene.state == (S.COMPLETE_ABORT, PID, 6)
    assert scene.init() == (PID, 7)


def test_known_bug_04_at_the_last_epoch_it_is_not_negative() -> None:
    scene = given(txn(S.ONGOING, (PID, LAST)))
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    (owed,) = scene.write_markers()
    assert owed.producer_epoch == MAX
    assert scene.init() == (NEW_PID, 1)


# apache/kafka 18758: with the epochs used up, EndTxn answered with the old producer id and the producer fenced itself.
@pytest.mark.parametrize("committed", [True, False])
def test_known_bug_05_the_pair_that_an_end_answers_is_the_one_that_is_good_from_then_on(committed: bool) -> None:
    scene = given(txn(S.ONGOING, (PID, LAST)))
    asked = scene.end((PID, LAST), committed=committed, version=5)
    scene.write_markers()
    assert asked.pair == (NEW_PID, 0)
    assert scene.add5(asked.pair, P0) == {P0: E.NONE}


# apache/kafka 22096: the epoch before the last bump was in memory only; after a failover its retry was a stranger's.
def test_known_bug_06_a_producer_that_repeats_its_init_across_a_restart_is_known() -> None:
    scene = given(txn(S.EMPTY, (PID, 3)))
    assert scene.init((PID, 3)) == (PID, 4)
    assert scene.restarted().init((PID, 3)) == (PID, 4)


def test_known_bug_06_also_when_its_producer_id_was_replaced() -> None:
    scene = given(txn(S.EMPTY, (PID, LAST)))
    assert scene.init((PID, LAST)) == (NEW_PID, 0)
    assert scene.restarted().init((PID, LAST)) == (NEW_PID, 0)


# KAFKA-16352: the answer to an older epoch's markers removed what the newer epoch waited for, so that nobody was ever
# told that all markers were written.
def test_known_bug_12_answers_to_an_older_coordinators_markers_take_nothing_from_the_newers() -> None:
    before = given(txn(S.PREPARE_COMMIT, (PID, 2), [P0, P1]))
    (old,) = before.owed
    after = before.restarted()
    after.markers_answered(old, old.partitions)
    assert after.state == (S.PREPARE_COMMIT, PID, 2)
    (new,) = after.write_markers()
    assert (new.coordinator_epoch, new.partitions) == (COORDINATOR_EPOCH + 1, frozenset({P0, P1}))
    assert after.state == (S.COMPLETE_COMMIT, PID, 2)


# KAFKA-9600: "not below the stored one" was the test of EndTxn's epoch, so that a client could invent a higher one.
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("ahead", [1, 2, 100])
def test_known_bug_16_nobody_ends_a_transaction_with_an_epoch_that_was_never_given_out(
    ahead: int, committed: bool, version: int
) -> None:
    scene = given(txn(S.ONGOING, (PID, 5), version=2 if version == 5 else 0))
    with refused(E.PRODUCER_FENCED):
        scene.end((PID, 5 + ahead), committed=committed, version=version)
    assert scene.state == (S.ONGOING, PID, 5)


# KAFKA-9666: each attempt to fence bumped the epoch in memory, also when its record could not be written; retries used
# the epochs up.
@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_known_bug_17_fencing_that_cannot_be_recorded_costs_no_epochs(transaction_version: int) -> None:
    version = 2 if transaction_version == 2 else 0
    scene = given(txn(S.ONGOING, (PID, 5), version=version), transaction_version=transaction_version)
    scene.refuse_appends = E.COORDINATOR_NOT_AVAILABLE
    for _ in range(40):
        with refused(E.COORDINATOR_NOT_AVAILABLE):
            scene.init()
    scene.refuse_appends = None
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, 6)


# KAFKA-5231: the abort for a new owner was sent with the old epoch, and its producer went on writing behind the marker.
@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_known_bug_18_the_markers_of_a_take_over_fence_who_was_taken_over(transaction_version: int) -> None:
    version = 2 if transaction_version == 2 else 0
    scene = given(txn(S.ONGOING, (PID, 5), version=version), transaction_version=transaction_version)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    (owed,) = scene.owed
    assert (owed.producer_epoch, owed.is_commit) == (6, False)


# redpanda 8566, 14624: after a restart the clock of open transactions stood still, or they were forgotten.
def test_known_bug_37_a_transaction_that_was_open_before_the_restart_times_out() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.advance(TIMEOUT_MS - 1)
    again = scene.restarted()
    again.advance(2)
    assert again.time_out() == ["pay"]


def test_known_bug_37_an_id_that_nobody_used_since_before_the_restart_is_forgotten() -> None:
    again = given(txn(S.COMPLETE_COMMIT, (PID, 1))).restarted()
    again.advance(7 * DAY_MS)
    again.expire()
    with refused(E.TRANSACTIONAL_ID_NOT_FOUND):
        again.describe()


# redpanda 6311: what was open before the restart was nobody's afterwards, and stood in the way of its own producer.
def test_known_bug_38_a_restored_open_transaction_gives_way_to_its_producer() -> None:
    again = given(txn(S.ONGOING, (PID, 1))).restarted()
    with refused(E.CONCURRENT_TRANSACTIONS):
        again.init()
    again.write_markers()
    assert again.init() == (PID, 3)


# KoP 1412: the markers of a decision were written after the restart, its end was not.
@pytest.mark.parametrize(
    ("decided", "complete"), [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)]
)
def test_known_bug_44_what_was_decided_before_the_restart_is_complete_after_it(
    decided: TxnState, complete: TxnState
) -> None:
    again = given(txn(decided, (PID, 2), [P0, P1])).restarted()
    again.write_markers(only=[P0])
    again.advance(1_000)
    again.write_markers()
    assert again.state == (complete, PID, 2)
    assert again.restarted().owed == []


# Starlight for Kafka 40: the state that an entry was about to take stayed behind when its record could not be written,
# and all requests were answered CONCURRENT_TRANSACTIONS without end.
def test_known_bug_45_whatever_could_not_be_recorded_stands_in_nobodys_way() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.add5((PID, 1), P0)
    scene.refuse_appends = None
    scene.add5((PID, 1), P0)
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.commit5((PID, 1))
    scene.refuse_appends = None
    asked = scene.commit5((PID, 1))
    scene.refuse_appends = E.NOT_COORDINATOR
    scene.write_markers()
    scene.refuse_appends = None
    scene.advance(1_000)
    scene.write_markers()
    assert asked.pair == (PID, 2)
    assert scene.init() == (PID, 3)


# Seen in Kafka 4.3.1: at level 0 a step of version 2 cannot be recorded, and the id answers CONCURRENT_TRANSACTIONS
# until its coordinator is loaded anew. Here it is taken as a step of version 0.
def test_known_bug_51_at_level_0_a_request_of_version_2_is_served_as_one_of_version_0() -> None:
    scene = given(txn(S.EMPTY, (PID, 1), version=0), transaction_version=0)
    assert scene.add5((PID, 1), P0) == {P0: E.NONE}
    asked = scene.commit5((PID, 1))
    scene.write_markers()
    assert asked.pair == (-1, -1)
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.init() == (PID, 2)


def test_known_bug_51_after_a_downgrade_an_id_that_committed_under_2_goes_on() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 3)))
    scene.transaction_version = 0
    assert scene.init() == (PID, 4)
    assert scene.add((PID, 4), P0) == {P0: E.NONE}
    scene.commit4((PID, 4))
    scene.write_markers()
    assert scene.restarted().state == (S.COMPLETE_COMMIT, PID, 4)


# KAFKA-20734, seen in 4.3.1: a partition without a leader was taken for deleted; the transaction was complete without
# its marker, and the next one swallowed its records.
@pytest.mark.parametrize("committed", [True, False])
def test_known_bug_52_without_its_leader_a_partition_keeps_the_transaction_waiting(committed: bool) -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, P1]))
    asked = scene.end((PID, 1), committed=committed, version=5)
    for _ in range(10):
        scene.write_markers(only=[P0])
        scene.advance(1_000)
    assert scene.state == (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT, PID, 2)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.add5((PID, 2), P1)
    (owed,) = scene.write_markers()
    assert owed.partitions == {P1}
    assert asked.pair == (PID, 2)
    assert scene.state == (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT, PID, 2)
