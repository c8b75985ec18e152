"""Tests the coordinator's decisions about InitProducerId.

Rules: docs/spec/transactions.md#s2-2; scenarios 1 to 17: #s8-1.
"""

import pytest

from odradek.broker.transactions.tables import TxnState
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.transaction_scene import MAX, NEW_PID, NOW_MS, P0, PID, TIMEOUT_MS, E, S, given, refused, txn

WAIT, FENCED = E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED
LAST = MAX - 1


def test_scenario_002_the_empty_id_is_refused() -> None:
    with refused(E.INVALID_REQUEST):
        given().init(transactional_id="")


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_scenario_003_a_timeout_that_is_not_positive_or_above_the_brokers_is_refused(timeout_ms: int) -> None:
    with refused(E.INVALID_TRANSACTION_TIMEOUT):
        given(config=TransactionConfig(transaction_max_timeout_ms=900_000)).init(timeout_ms=timeout_ms)


def test_scenario_003_the_brokers_own_limit_is_accepted() -> None:
    scene = given(config=TransactionConfig(transaction_max_timeout_ms=900_000))
    assert scene.init(timeout_ms=900_000) == (NEW_PID, 0)


def test_scenario_005_a_new_id_begins_empty_at_epoch_0_without_partitions_or_start() -> None:
    scene = given()
    assert scene.init() == (NEW_PID, 0)
    assert scene.written == [txn(S.EMPTY, (NEW_PID, 0), version=0)]
    assert scene.txn.started_ms is None


def test_scenario_006_a_second_producer_bumps_the_epoch_and_fences_the_first() -> None:
    scene = given(txn(S.EMPTY, (PID, 0)))
    assert scene.init() == (PID, 1)
    with refused(FENCED):
        scene.add((PID, 0))


def test_scenario_007_a_producer_that_repeats_its_pair_gets_the_same_answer_without_another_bump() -> None:
    scene = given(txn(S.EMPTY, (PID, 3)))
    assert scene.init((PID, 3)) == (PID, 4)
    assert scene.init((PID, 3)) == (PID, 4)
    with refused(FENCED):
        scene.init((PID, 2))


# Kafka kept the epoch before the last increase only in memory. After a failover, the coordinator did not recognise a
# retry with this epoch.
@pytest.mark.known_bug(6, "apache/kafka 22096")
def test_scenario_007_a_repeated_request_after_a_restart_gets_the_same_answer() -> None:
    scene = given(txn(S.EMPTY, (PID, 3)))
    scene.init((PID, 3))
    assert scene.restarted().init((PID, 3)) == (PID, 4)


def test_scenario_008_a_replaced_producer_epoch_is_fenced() -> None:
    scene = given(txn(S.EMPTY, (PID, 3)))
    assert scene.init() == (PID, 4)
    with refused(FENCED):
        scene.init((PID, 3))
    with refused(FENCED):
        scene.restarted().init((PID, 3))


def test_scenario_009_an_open_transaction_is_aborted_for_the_new_owner_at_version_0() -> None:
    scene = given(txn(S.ONGOING, (PID, 5), version=0), transaction_version=0)
    with refused(WAIT):
        scene.init()
    (owed,) = scene.write_markers()
    assert (owed.is_commit, owed.producer_epoch, owed.transaction_version) == (False, 6, 0)
    assert scene.state == (S.COMPLETE_ABORT, PID, 6)
    with refused(FENCED):
        scene.init((PID, 5))
    assert scene.init() == (PID, 7)


# In Kafka, the new owner of an open transaction increased the epoch once for the fence and once for the abort. At epoch
# 32766, the second increase made it negative.
@pytest.mark.known_bug(4, "apache/kafka 19910")
def test_scenario_010_at_version_2_the_abort_and_the_retry_bump_the_epoch_once_each() -> None:
    scene = given(txn(S.ONGOING, (PID, 5)))
    with refused(WAIT):
        scene.init()
    (owed,) = scene.write_markers()
    assert (owed.producer_epoch, owed.transaction_version) == (6, 2)
    assert scene.state == (S.COMPLETE_ABORT, PID, 6)
    assert scene.init() == (PID, 7)


def test_scenario_010_the_owner_of_the_aborted_transaction_gets_the_epoch_of_the_abort() -> None:
    scene = given(txn(S.ONGOING, (PID, 5)))
    with refused(WAIT):
        scene.init((PID, 5))
    scene.write_markers()
    assert scene.init((PID, 5)) == (PID, 6)


def test_scenario_011_another_producer_id_leaves_the_open_transaction_alone() -> None:
    scene = given(txn(S.ONGOING, (PID, 5)))
    with refused(FENCED):
        scene.init((PID + 1, 0))
    assert scene.written == []


def test_scenario_012_the_right_id_with_an_old_epoch_aborts_and_is_fenced_on_its_retry() -> None:
    scene = given(txn(S.ONGOING, (PID, 5)))
    with refused(WAIT):
        scene.init((PID, 2))
    scene.write_markers()
    with refused(FENCED):
        scene.init((PID, 2))


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("pair", [(-1, -1), (PID, 5), (PID, 4), (8, 0)])
def test_scenario_013_every_request_waits_while_a_decision_is_carried_out(
    state: TxnState, pair: tuple[int, int]
) -> None:
    scene = given(txn(state, (PID, 5)))
    with refused(WAIT):
        scene.init(pair)
    assert scene.written == []


def test_scenario_014_the_last_epoch_gives_way_to_a_new_producer_id() -> None:
    scene = given(txn(S.EMPTY, (PID, LAST)))
    assert scene.init((PID, LAST)) == (NEW_PID, 0)
    assert scene.txn.previous_producer_id == PID
    assert scene.init((PID, LAST)) == (NEW_PID, 0)
    assert scene.init((PID, LAST)) == (NEW_PID, 0)


@pytest.mark.known_bug(6, "apache/kafka 22096")
def test_scenario_014_a_retry_after_the_rotation_survives_a_restart() -> None:
    scene = given(txn(S.EMPTY, (PID, LAST)))
    scene.init((PID, LAST))
    assert scene.restarted().init((PID, LAST)) == (NEW_PID, 0)


def test_scenario_014_an_older_epoch_than_the_last_is_fenced_and_not_an_error_of_the_server() -> None:
    scene = given(txn(S.EMPTY, (PID, LAST)))
    with refused(FENCED):
        scene.init((PID, LAST - 1))


def test_scenario_014_the_retry_of_the_bump_to_the_last_epoch_is_known() -> None:
    scene = given(txn(S.EMPTY, (PID, LAST - 1)))
    assert scene.init((PID, LAST - 1)) == (PID, LAST)
    assert scene.init((PID, LAST - 1)) == (PID, LAST)


def test_scenario_015_a_first_record_that_is_not_written_costs_no_second_producer_id() -> None:
    scene = given()
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.init()
    shown = scene.describe()
    assert (shown.transaction_state, shown.producer_id, shown.producer_epoch) == ("Empty", NEW_PID, -1)
    scene.refuse_appends = None
    assert scene.init() == (NEW_PID, 0)
    assert len(scene.written) == 1


def test_scenario_016_an_id_is_not_created_without_a_producer_id() -> None:
    scene = given()
    scene.has_producer_ids = False
    with refused(E.COORDINATOR_LOAD_IN_PROGRESS):
        scene.init()
    with refused(E.TRANSACTIONAL_ID_NOT_FOUND):
        scene.describe()
    scene.has_producer_ids = True
    assert scene.init() == (NEW_PID, 0)


def test_scenario_017_two_first_requests_create_one_entry_and_both_bump_the_epoch() -> None:
    scene = given()
    request = InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=TIMEOUT_MS)
    for producer_id in (20, 21):
        scene.core.settle(scene.core.reserve(request, producer_id, NOW_MS))
    assert scene.init() == (20, 0)
    assert scene.init() == (20, 1)


def test_a_new_owner_brings_its_own_timeout() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 3)))
    scene.init(timeout_ms=1_234)
    assert scene.txn.timeout_ms == 1_234


@pytest.mark.known_bug(3, "apache/kafka 21506, 21469")
@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_epoch_that_only_an_old_fault_can_have_left_behind_is_recovered_from(state: TxnState) -> None:
    assert given(txn(state, (PID, MAX))).init() == (NEW_PID, 0)


@pytest.mark.known_bug(4, "apache/kafka 19910")
def test_an_open_transaction_at_the_last_epoch_is_aborted_into_a_new_producer_id() -> None:
    scene = given(txn(S.ONGOING, (PID, LAST), [P0]))
    with refused(WAIT):
        scene.init()
    (owed,) = scene.write_markers()
    assert owed.producer_epoch == MAX
    assert scene.state == (S.COMPLETE_ABORT, NEW_PID, 0)
    assert scene.init((PID, LAST)) == (NEW_PID, 0)
    assert scene.init() == (NEW_PID, 1)


# Kafka increased the epoch in memory on each attempt to fence, even if the record could not be written. Retries used up
# the epochs.
@pytest.mark.known_bug(17, "KAFKA-9666")
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_an_abort_for_the_new_owner_that_is_not_written_has_not_happened(
    code: ErrorCode, transaction_version: int
) -> None:
    version = 2 if transaction_version == 2 else 0
    scene = given(txn(S.ONGOING, (PID, 5), version=version), transaction_version=transaction_version)
    scene.refuse_appends = code
    for _ in range(40):
        with refused(code):
            scene.init()
    assert scene.state == (S.ONGOING, PID, 5)
    assert scene.owed == []
    scene.refuse_appends = None
    with refused(WAIT):
        scene.init()
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, 6)


def test_two_phase_commit_must_be_enabled_on_the_broker() -> None:
    with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        given().init(enable2_pc=True)


# In Kafka, the abort for a new owner had the old epoch, so the old producer could write after the marker.
@pytest.mark.known_bug(18, "KAFKA-5231")
@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_the_markers_of_a_take_over_fence_the_previous_producer(transaction_version: int) -> None:
    version = 2 if transaction_version == 2 else 0
    scene = given(txn(S.ONGOING, (PID, 5), version=version), transaction_version=transaction_version)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    (owed,) = scene.owed
    assert (owed.producer_epoch, owed.is_commit) == (6, False)


# After a restart of Redpanda, the open transaction had no owner and blocked its own producer.
@pytest.mark.known_bug(38, "redpanda 6311")
def test_a_restored_open_transaction_is_aborted_for_a_new_producer() -> None:
    again = given(txn(S.ONGOING, (PID, 1))).restarted()
    with refused(E.CONCURRENT_TRANSACTIONS):
        again.init()
    again.write_markers()
    assert again.init() == (PID, 3)
