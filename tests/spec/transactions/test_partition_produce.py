"""Tests transactional Produce requests, versions 3 to 13. The tests cover the requests to the coordinator, their order,
and the responses.

Rules: docs/spec/transactions.md#s2-8; scenarios: #s8-5. The tests use the real coordinator unless they replace it.
"""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.validation import CHEAP_RECORDS
from tests.support.broker_scene import NOW_MS
from tests.support.transaction_scene import refused
from tests.support.transactional_clients import ID, TIMEOUT_MS, TV1, TV2, Answering, Clients, Pair, batch_of

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)
VERSIONS = (10, 11, 12)
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def scene() -> Clients:
    return Clients()


def end_offset(scene: Clients, index: int = 0) -> int:
    return scene.partition("t", index).log.log_end_offset


# --- The requests to the coordinator.


@pytest.mark.parametrize("version", range(3, 14))
def test_a_transaction_is_written_and_committed_at_every_version(scene: Clients, version: int) -> None:
    pair = scene.init()
    if version < TV2:
        assert scene.add(pair) is E.NONE
    assert scene.produce(pair, 0, b"a", b"b", version=version) is E.NONE
    assert scene.produce(pair, 2, b"c", version=version) is E.NONE
    assert scene.read(committed=True) == []
    scene.commit(pair, version=5 if version >= TV2 else 4)
    assert scene.read(committed=True) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("version", "question"), [(3, (True, 0)), (10, (True, 0)), (11, (True, 0)), (12, (False, 2)), (13, (False, 2))]
)
def test_old_clients_are_verified_and_new_ones_added(scene: Clients, version: int, question: tuple[bool, int]) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    assert scene.produce((7, 3), version=version) is E.NONE
    assert coordinator.requests == [(ID, 7, 3, frozenset({T0}), *question)]


def test_only_partitions_without_an_open_transaction_are_verified_in_one_request(
    scene: Clients,
) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    scene.topic("u", 3)
    scene.produce((7, 0), topic="u")
    scene.produce_answers(scene.send(batch_of((7, 0), 1), batch_of((7, 0)), batch_of((7, 0)), topic="u"))
    assert [request[3] for request in coordinator.requests] == [frozenset({("u", 0)}), frozenset({("u", 1), ("u", 2)})]


def test_in_an_open_transaction_not_even_the_transactional_id_is_verified(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair)
    coordinator = scene.coordinator = Answering(E.UNKNOWN_SERVER_ERROR)
    assert scene.produce(pair, 1, transactional_id="somebody else") is E.NONE
    assert coordinator.requests == []


def test_records_outside_transactions_are_written_beside_those_within(scene: Clients) -> None:
    pair = scene.init()
    plain = build_batch([NewRecord(b"k", b"plain", NOW_MS)])
    answers = scene.produce_answers(scene.send(batch_of(pair), plain))
    assert [answer.error_code for answer in answers] == [0, 0]
    assert scene.read(committed=True, index=1) == [b"plain"]


def test_a_request_is_written_when_its_coordinator_has_answered_and_not_before(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    reply = scene.send(batch_of((7, 0)))
    scene.settle()
    assert not reply.is_done
    assert not reply.overlaps, "the next request of the connection waits, so that sequences stay in order"
    assert end_offset(scene) == 0
    coordinator.held.pop()()
    assert [answer.error_code for answer in scene.produce_answers(reply)] == [0]
    assert end_offset(scene) == 1


def test_a_topic_that_is_deleted_during_verification_is_unknown(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    reply = scene.send(batch_of((7, 0)))
    scene.delete_topic("t")
    coordinator.held.pop()()
    assert [answer.error_code for answer in scene.produce_answers(reply)] == [E.UNKNOWN_TOPIC_OR_PARTITION.value]


def test_a_large_batch_is_verified_before_it_is_checked_in_a_thread(scene: Clients) -> None:
    pair = scene.init()
    values = [b"v"] * (CHEAP_RECORDS + 1)
    assert scene.produce(pair, 0, *values) is E.NONE
    scene.commit(pair)
    assert len(scene.read(committed=True)) == len(values)


def test_a_large_batch_whose_transaction_ends_while_it_is_checked_stays_out_of_the_next(scene: Clients) -> None:
    pair = scene.init()
    scene.add(pair)
    reply = scene.send(batch_of(pair, 0, *[b"late"] * (CHEAP_RECORDS + 1)), version=TV1)
    scene.abort(pair, version=4)
    scene.add(pair, 1)
    (answer,) = scene.produce_answers(reply, TV1)
    assert answer.error_code == E.INVALID_TXN_STATE.value
    assert scene.latest_offset(committed=True) == scene.latest_offset(committed=False)


# --- The order of the checks.


def test_without_a_transactional_id_the_whole_request_is_refused(scene: Clients) -> None:
    with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        scene.send(batch_of((7, 0)), transactional_id=None)


def test_scenario_083_two_producers_in_one_request_are_refused_as_a_whole(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    for others in [(8, 0), (7, 1)]:
        with refused(E.INVALID_PRODUCER_ID_MAPPING):
            scene.send(batch_of((7, 0)), batch_of(others))
    assert coordinator.requests == []
    assert (end_offset(scene), end_offset(scene, 1)) == (0, 0)


def test_a_producer_outside_transactions_may_share_a_transactional_request(scene: Clients) -> None:
    pair = scene.init()
    answers = scene.produce_answers(scene.send(batch_of(pair), batch_of((99, 0), transactional=False)))
    assert [answer.error_code for answer in answers] == [0, 0]


def test_a_missing_partition_is_refused_and_the_others_are_written(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    answers = scene.produce_answers(scene.send(batch_of((7, 0)), None, batch_of((7, 0))))
    assert [answer.error_code for answer in answers] == [0, E.UNKNOWN_TOPIC_OR_PARTITION.value]
    assert coordinator.requests[0][3] == {T0}


def test_a_batch_that_is_refused_for_its_records_may_have_been_added(scene: Clients) -> None:
    pair = scene.init()
    damaged = batch_of(pair)
    damaged[-1] ^= 1
    assert scene.produce_answers(scene.send(damaged))[0].error_code == E.CORRUPT_MESSAGE.value
    assert [topic.topic for topic in scene.transactions.describe(ID).topics] == ["t"]


@pytest.mark.parametrize("version", [TV1, TV2])
def test_two_batches_in_one_partition_are_refused_before_verification(scene: Clients, version: int) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    assert (
        scene.produce_answers(scene.send(batch_of((7, 0)) + batch_of((7, 0), 1), version=version), version)[
            0
        ].error_code
        == E.INVALID_RECORD.value
    )
    assert coordinator.requests == []


# --- The effect of the coordinator's answers.


@pytest.mark.parametrize(
    ("code", "codes"),
    [
        (E.TRANSACTION_ABORTABLE, (E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE)),
        (E.PRODUCER_FENCED, (E.INVALID_PRODUCER_EPOCH,) * 3),
        (E.NETWORK_EXCEPTION, (E.NOT_ENOUGH_REPLICAS,) * 3),
        (E.COORDINATOR_LOAD_IN_PROGRESS, (E.NOT_ENOUGH_REPLICAS,) * 3),
        (E.COORDINATOR_NOT_AVAILABLE, (E.NOT_ENOUGH_REPLICAS,) * 3),
        (E.NOT_COORDINATOR, (E.NOT_ENOUGH_REPLICAS,) * 3),
        (E.CONCURRENT_TRANSACTIONS, (E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS)),
        (E.INVALID_PRODUCER_ID_MAPPING, (E.INVALID_PRODUCER_ID_MAPPING,) * 3),
        (E.UNKNOWN_TOPIC_OR_PARTITION, (E.UNKNOWN_TOPIC_OR_PARTITION,) * 3),
        (E.OPERATION_NOT_ATTEMPTED, (E.OPERATION_NOT_ATTEMPTED,) * 3),
        (E.INVALID_TXN_STATE, (E.INVALID_TXN_STATE,) * 3),
    ],
)
def test_errors_of_the_coordinator_are_translated_for_the_client(
    scene: Clients, code: ErrorCode, codes: tuple[ErrorCode, ...]
) -> None:
    scene.coordinator = Answering(code)
    for version, expected in zip(VERSIONS, codes, strict=True):
        reply = scene.send(batch_of((7, 0)), version=version)
        scene.timers.advance(200)
        (answer,) = scene.produce_answers(reply, version)
        assert ErrorCode(answer.error_code) is expected
        assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)
        explained = expected in (E.NOT_ENOUGH_REPLICAS, E.INVALID_TXN_STATE)
        assert (answer.error_message is not None) is explained, "as Kafka, which has words for these two"
    assert end_offset(scene) == 0


def test_scenario_085_an_unavailable_coordinator_causes_a_retriable_error(scene: Clients) -> None:
    scene.coordinator = None
    (answer,) = scene.produce_answers(scene.send(batch_of((7, 0))))
    assert answer.error_code == E.NOT_ENOUGH_REPLICAS.value
    assert answer.error_message is not None
    assert answer.error_message.endswith("COORDINATOR_NOT_AVAILABLE")
    assert end_offset(scene) == 0


# --- The previous transaction is about to complete.


def stuck_in_prepare(scene: Clients) -> Pair:
    """Ends a transaction whose marker cannot be written yet. Returns the producer id and epoch of the next
    transaction."""
    pair = scene.init()
    scene.produce(pair)
    scene.markers.refusals[T0] = E.NOT_LEADER_OR_FOLLOWER
    return scene.commit(pair)


def test_scenario_052_a_produce_before_the_end_is_recorded_waits_for_the_end(scene: Clients) -> None:
    following = stuck_in_prepare(scene)
    reply = scene.send(None, batch_of(following))
    scene.settle()
    assert not reply.is_done
    scene.markers.refusals.clear()
    scene.timers.advance(120)
    assert [answer.error_code for answer in scene.produce_answers(reply)] == [0]


def test_scenario_052_verification_is_repeated_every_20_ms_for_100_ms(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.CONCURRENT_TRANSACTIONS)
    reply = scene.send(batch_of((7, 0)))
    for count in range(1, 6):
        assert len(coordinator.requests) == count
        assert not reply.is_done
        scene.timers.advance(20)
    assert [answer.error_code for answer in scene.produce_answers(reply)] == [E.CONCURRENT_TRANSACTIONS.value]
    assert len(coordinator.requests) == 6
    scene.timers.advance(1000)
    assert len(coordinator.requests) == 6


def test_scenario_052_the_retries_end_within_the_request_timeout(scene: Clients) -> None:
    scene = Clients(request_timeout_ms=40)
    coordinator = scene.coordinator = Answering(E.CONCURRENT_TRANSACTIONS)
    scene.send(batch_of((7, 0)))
    scene.timers.advance(1000)
    assert len(coordinator.requests) == 3


def test_requests_of_old_clients_do_not_wait(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.CONCURRENT_TRANSACTIONS)
    assert scene.produce((7, 0), version=TV1) is E.NOT_ENOUGH_REPLICAS
    assert len(coordinator.requests) == 1


def test_a_producer_that_is_fenced_while_it_waits_gets_invalid_producer_epoch(scene: Clients) -> None:
    scene.coordinator = Answering(E.CONCURRENT_TRANSACTIONS)
    reply = scene.send(batch_of((7, 0)))
    scene.write_marker((7, 1), commit=False)
    scene.timers.advance(20)
    assert [answer.error_code for answer in scene.produce_answers(reply)] == [E.INVALID_PRODUCER_EPOCH.value]


# --- Scenarios with the real coordinator.


def test_scenario_024_a_late_produce_of_the_finished_transaction_is_fenced(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair)
    scene.commit(pair)
    assert scene.produce(pair, index=1) is E.INVALID_PRODUCER_EPOCH, "by the coordinator: this partition knows nothing"


@pytest.mark.parametrize("commit", [True, False])
def test_scenario_071_a_zombie_of_a_finished_transaction_is_fenced_by_the_partition(
    scene: Clients, commit: bool
) -> None:
    pair = scene.init()
    scene.produce(pair)
    scene.end(pair, commit=commit)
    before = end_offset(scene)
    coordinator = scene.coordinator = Answering(E.NONE)
    assert scene.produce(pair, 1) is E.INVALID_PRODUCER_EPOCH
    assert coordinator.requests == []
    assert end_offset(scene) == before


def test_scenario_072_a_zombie_whose_transaction_was_aborted_for_its_successor_is_fenced(scene: Clients) -> None:
    pair = scene.init()
    scene.add(pair)
    scene.produce(pair, version=TV1)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    assert scene.produce(pair, 1, version=TV1) is E.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "code"), [(10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)])
def test_scenario_073_a_partition_that_was_not_added_accepts_no_records(
    scene: Clients, version: int, code: ErrorCode
) -> None:
    pair = scene.init()
    scene.add(pair, 1)
    assert scene.produce(pair, version=version) is code
    assert end_offset(scene) == 0


def test_scenario_074_produce_of_a_new_client_adds_the_partition(scene: Clients) -> None:
    pair = scene.init()
    assert scene.produce(pair) is E.NONE
    described = scene.transactions.describe(ID)
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0])]


def test_scenario_076_after_a_refusal_the_client_sends_from_its_first_sequence_again(scene: Clients) -> None:
    pair = scene.init()
    scene.coordinator = Answering(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert scene.produce(pair, 0, b"a") is E.NOT_ENOUGH_REPLICAS
    scene.coordinator = scene.transactions
    assert scene.produce(pair, 5, b"c") is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scene.produce(pair, 0, b"a", b"b", b"b", b"b", b"b") is E.NONE
    assert scene.produce(pair, 5, b"c") is E.NONE


def test_scenario_082_a_batch_outside_the_open_transaction_is_refused(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair)
    (answer,) = scene.produce_answers(scene.send(batch_of(pair, 1, transactional=False)))
    assert (answer.error_code, answer.error_message) == (E.INVALID_TXN_STATE.value, None)


def test_scenario_086_two_requests_of_one_producer_to_different_partitions_are_both_written(scene: Clients) -> None:
    pair = scene.init()
    first, second = scene.send(batch_of(pair)), scene.send(None, batch_of(pair))
    assert [scene.produce_answers(reply)[0].error_code for reply in (first, second)] == [0, 0]
    scene.commit(pair)
    assert scene.read(committed=True) == scene.read(committed=True, index=1) == [b"v"]


class SwitchedOff:
    """A broker with `transaction.partition.verification.enable=false`."""

    @pytest.fixture
    def scene(self) -> Clients:
        return Clients(transaction_partition_verification_enable=False)


class TestWithoutVerification(SwitchedOff):
    def test_scenario_088_an_old_client_may_leave_a_transaction_hanging(self, scene: Clients) -> None:
        pair = scene.init()
        assert scene.produce(pair, version=TV1) is E.NONE
        with refused(E.INVALID_TXN_STATE):
            scene.commit(pair, version=4)
        assert scene.latest_offset(committed=True) == 0
        assert scene.write_marker(pair, commit=False) is E.NONE
        assert scene.latest_offset(committed=True) == 2
        assert scene.read(committed=True) == []

    def test_scenario_088_produce_of_a_new_client_asks_the_coordinator_without_verification(
        self, scene: Clients
    ) -> None:
        coordinator = scene.coordinator = Answering(E.INVALID_PRODUCER_ID_MAPPING)
        assert scene.produce((7, 0)) is E.INVALID_PRODUCER_ID_MAPPING
        assert len(coordinator.requests) == 1

    def test_a_batch_without_verification_needs_no_guard(self, scene: Clients) -> None:
        coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
        reply = scene.send(batch_of((7, 0)))
        scene.write_marker((7, 0), commit=False, coordinator_epoch=1)
        scene.write_marker((8, 0), commit=False)
        coordinator.held.pop()()
        assert [answer.error_code for answer in scene.produce_answers(reply)] == [0]

    def test_verification_can_be_enabled_at_run_time(self, scene: Clients) -> None:
        scene.broker.config.transaction_partition_verification_enable = True
        pair = scene.init()
        assert scene.produce(pair, version=TV1) is E.TRANSACTION_ABORTABLE


def nothing_hangs(scene: Clients, index: int = 0) -> bool:
    return scene.latest_offset(committed=True, index=index) == scene.latest_offset(committed=False, index=index)


# In Kafka, the abort's marker could be written between the coordinator's approval and the append. The batch then opened
# a transaction that nothing would ever end.
@pytest.mark.known_bug(8, "KAFKA-14884")
@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_marker_between_verification_and_append_leaves_no_hanging_transaction(scene: Clients, version: int) -> None:
    pair = scene.init()
    scene.add(pair)
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    reply = scene.send(batch_of(pair), version=version)
    scene.abort(pair, version=4 if version == TV1 else 5)
    coordinator.held.pop()()
    (answer,) = scene.produce_answers(reply, version)
    # At version 2, the marker has fenced the epoch.
    assert ErrorCode(answer.error_code) is (E.INVALID_TXN_STATE if version == TV1 else E.INVALID_PRODUCER_EPOCH)
    assert nothing_hangs(scene)


# A marker below version 2 has the epoch of the transaction that it ends. In an earlier Odradek, a Produce v12 batch
# that was being checked in a thread kept its guard. It was appended after the marker and held back readers forever.
@pytest.mark.known_bug(62, "ours")
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("transaction_version", "end_txn"), [(2, 4), (1, 4), (0, 4), (0, 5)])
def test_a_marker_while_the_batch_is_checked_in_a_thread_leaves_no_hanging_transaction(
    transaction_version: int, end_txn: int, commit: bool
) -> None:
    scene = Clients(transaction_version=transaction_version)
    pair = scene.init()
    reply = scene.send(batch_of(pair, 0, *[b"late"] * (CHEAP_RECORDS + 1)), version=TV2)
    assert scene.workers.jobs, "the batch is in a thread"
    scene.end(pair, commit=commit, version=end_txn)
    (answer,) = scene.produce_answers(reply, TV2)
    assert ErrorCode(answer.error_code) is E.INVALID_TXN_STATE
    assert nothing_hangs(scene)


# Kafka treated a delayed request from a completed transaction as a request from the next transaction.
@pytest.mark.known_bug(9, "KAFKA-17754")
def test_a_late_batch_of_one_transaction_does_not_enter_the_next(scene: Clients) -> None:
    first = scene.init()
    scene.produce(first, 0, b"first")
    second = scene.commit(first)
    scene.produce(second, 0, b"second")
    assert scene.produce(first, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert scene.produce(first, 0, b"late", index=1) is E.INVALID_PRODUCER_EPOCH
    assert scene.commit_offset_in_transaction(first, 10) is E.INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        with refused(E.PRODUCER_FENCED):
            scene.end(first, commit=commit)
    assert scene.transactions.describe(ID).transaction_state == "Ongoing"
    assert scene.read(committed=True) == [b"first"]
    scene.commit(second)
    assert scene.read(committed=True) == [b"first", b"second"]
    assert scene.read(committed=True, index=1) == []


# The client gave up on a batch and aborted. In Kafka, the batch arrived after the abort's marker and held back readers
# forever.
@pytest.mark.known_bug(10, "KAFKA-14053")
@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_a_batch_after_an_abort_leaves_no_hanging_transaction(scene: Clients, version: int) -> None:
    pair = scene.init()
    scene.add(pair)
    scene.abort(pair, version=5 if version >= TV2 else 4)
    assert scene.produce(pair, 0, b"late", version=version) in (
        E.INVALID_TXN_STATE,
        E.TRANSACTION_ABORTABLE,
        E.INVALID_PRODUCER_EPOCH,
    )
    assert nothing_hangs(scene)


@pytest.mark.known_bug(10, "KAFKA-14053")
def test_a_batch_after_an_abort_by_timeout_leaves_no_hanging_transaction(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"in time")
    scene.clock.advance(TIMEOUT_MS + 1)
    scene.transactions.abort_timed_out()
    assert scene.produce(pair, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert nothing_hangs(scene)
    assert scene.read(committed=True) == []


# After Redpanda had removed an idle producer's state, it refused the producer's next sequence.
@pytest.mark.known_bug(39, "redpanda 22670")
def test_an_expired_idempotent_producer_continues_its_sequence(scene: Clients) -> None:
    assert scene.produce((50, 0), 0, b"a", b"b", transactional=False) is E.NONE
    log = scene.partition("t").log
    assert log.expire_producers(scene.clock.now_ms() + DAY_MS) == [50]
    assert scene.produce((50, 0), 2, b"c", transactional=False) is E.NONE
    assert scene.read(committed=True) == [b"a", b"b", b"c"]


# The transactional id may also expire, and its producer must still be able to return.
@pytest.mark.known_bug(39, "redpanda 22670")
def test_an_expired_transactional_producer_can_continue(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair)
    pair = scene.commit(pair)
    scene.partition("t").log.expire_producers(scene.clock.now_ms() + DAY_MS)
    assert scene.produce(pair) is E.NONE
    scene.commit(pair)
    assert scene.read(committed=True) == [b"v", b"v"]


# In Kafka 4.3.1, a Produce request from a new client to an internal topic adds the topic to the transaction before the
# request is refused.
@pytest.mark.known_bug(54, "Kafka 4.3.1")
def test_no_internal_topic_is_added_by_a_produce(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert scene.produce((7, 0), topic=topic) is E.INVALID_TOPIC_EXCEPTION
    assert coordinator.requests == []
