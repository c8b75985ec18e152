"""Tests the coordinator on real partitions, in scenarios that involve logs, markers and producer ids together.

Scenarios: docs/spec/transactions.md#s8.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.broker.runtime.waiting import Deferred
from odradek.broker.transactions.core import MARKER_RETRY_MS
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.support.broker_scene import answer_of
from tests.support.fake_disk import Fault
from tests.support.transaction_broker import TransactionBroker, is_parked
from tests.support.transaction_listing import all_listed
from tests.support.turns import run

E = ErrorCode
PID = 1000
P0, P1 = ("orders", 0), ("orders", 1)
OFFSETS = ("__consumer_offsets", 1)
Pair = tuple[int, int]


class Scene(TransactionBroker):
    def __init__(self, *, flush_messages: int | None = None) -> None:
        super().__init__()
        syncs = {} if flush_messages is None else {"flush_messages": flush_messages}
        self.topic(TRANSACTION_STATE, 3, **syncs)
        self.topic("__consumer_offsets", 3, **syncs)
        self.topic("orders", 2, **syncs)

    def init(self, transactional_id: str = "pay", pair: Pair = (-1, -1)) -> Pair:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=pair[0],
            producer_epoch=pair[1],
        )
        answer = self.answer(request, 5, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return answer.producer_id, answer.producer_epoch

    def begin(self, pair: Pair, *partitions: tuple[str, int], transactional_id: str = "pay") -> None:
        """Adds partitions to a transaction and appends a record of the transaction to each of them."""
        codes = self.transactions.add_partitions(
            transactional_id, *pair, partitions, verify_only=False, requested_version=2
        )
        assert set(answer_of(codes).values()) == {E.NONE}
        self.open_transaction(pair, *partitions)

    def end(self, pair: Pair, *, committed: bool = True, transactional_id: str = "pay") -> EndTxnResponse:
        return self.answer(self.ending(pair, committed=committed, transactional_id=transactional_id), 5, EndTxnResponse)

    def ending(self, pair: Pair, *, committed: bool = True, transactional_id: str = "pay") -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=committed
        )

    def state(self, transactional_id: str = "pay") -> tuple[str, int, int]:
        shown = self.transactions.describe(transactional_id)
        return shown.transaction_state, shown.producer_id, shown.producer_epoch

    def is_open(self, topic: str, index: int) -> bool:
        log = self.partition(topic, index).log
        return log.last_stable_offset < log.high_watermark


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_a_commit_is_answered_when_its_markers_are_written_and_its_end_is_recorded() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    answer = scene.end(pair)
    assert (answer.producer_id, answer.producer_epoch) == (PID, 1)
    assert scene.state() == ("CompleteCommit", PID, 1)
    for topic, index in (P0, P1):
        (marker,) = scene.markers_in(topic, index)
        assert (marker.producer_id, marker.producer_epoch, marker.is_commit) == (PID, 1, True)
        assert not scene.is_open(topic, index)
    scene.begin((PID, 1), P0)


def test_scenario_007_a_repeated_request_is_known_after_the_log_was_read_again() -> None:
    scene = Scene()
    first = scene.init()
    second = scene.init(pair=first)
    scene.restart_coordinator()
    assert scene.init(pair=first) == second == (PID, 1)


def test_scenario_016_without_producer_ids_an_id_is_not_begun() -> None:
    scene = Scene()
    scene.blocks.failure = KafkaError(E.STALE_BROKER_EPOCH)
    assert code_of(scene.init) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(scene.state) is E.TRANSACTIONAL_ID_NOT_FOUND
    scene.blocks.failure = None
    scene.timers.advance(50)
    assert scene.init() == (PID, 0)


def test_scenario_017_two_first_requests_make_one_entry() -> None:
    scene = Scene()
    scene.blocks.held = []
    request = InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=60_000)
    first, second = scene.ask(request, 5), scene.ask(request, 5)
    assert is_parked(first)
    assert is_parked(second)
    (allocate,) = scene.blocks.held
    allocate()
    assert [answer_of(each).producer_epoch for each in (first, second)] == [0, 1]
    assert answer_of(first).producer_id == answer_of(second).producer_id == PID
    assert len(all_listed(scene.transactions)) == 1


def test_scenario_053_a_decision_that_no_marker_followed_is_carried_out_after_the_restart() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    scene.markers.refusals = dict.fromkeys((P0, P1), E.KAFKA_STORAGE_ERROR)
    scene.end(pair)
    scene.markers.refusals = {}
    scene.restart_coordinator()
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert [marker.coordinator_epoch for marker in scene.markers_in(*P0)] == [1]


def test_scenario_054_markers_that_were_there_already_are_written_again_and_nobody_reads_otherwise() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    scene.markers.refusals = {P1: E.KAFKA_STORAGE_ERROR}
    scene.end(pair)
    assert not scene.is_open(*P0)
    assert scene.is_open(*P1)
    scene.markers.refusals = {}
    scene.restart_coordinator()
    assert [marker.coordinator_epoch for marker in scene.markers_in(*P0)] == [0, 1]
    assert [marker.coordinator_epoch for marker in scene.markers_in(*P1)] == [1]
    assert not scene.is_open(*P1)
    assert scene.state() == ("CompleteCommit", PID, 1)


def test_scenario_062_a_deleted_topic_is_not_waited_for_and_its_namesake_gets_no_marker() -> None:
    scene = Scene()
    scene.topic("refunds")
    pair = scene.init()
    scene.begin(pair, P0, ("refunds", 0))
    scene.delete_topic("refunds")
    scene.topic("refunds")
    scene.end(pair)
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert scene.markers_in("refunds") == []
    assert len(scene.markers_in(*P0)) == 1


def test_scenario_063_a_marker_that_met_no_leader_is_delivered_when_there_is_one() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    scene.markers.refusals = {P1: E.NOT_LEADER_OR_FOLLOWER}
    answer = scene.end(pair)
    assert (answer.error_code, answer.producer_epoch) == (0, 1)
    scene.markers.refusals = {}
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert len(scene.markers_in(*P0)) == len(scene.markers_in(*P1)) == 1


def test_a_pending_marker_is_not_sent_again_and_its_transaction_ends_with_it() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    scene.markers.pending = {P1: None}
    assert scene.end(pair).producer_epoch == 1
    scene.timers.advance(50 * MARKER_RETRY_MS)
    assert [each.partitions for each in scene.markers.sent] == [[P0, P1]]
    assert scene.state() == ("PrepareCommit", PID, 1)
    scene.markers.release(P1)
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert len(scene.markers_in(*P0)) == len(scene.markers_in(*P1)) == 1


def test_the_next_transaction_of_an_id_whose_marker_was_pending_begins_anew() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.pending = {P0: None}
    scene.end(pair)
    scene.markers.release(P0)
    scene.begin((PID, 1), P0)
    assert scene.end((PID, 1)).producer_epoch == 2
    assert scene.state() == ("CompleteCommit", PID, 2)
    assert [marker.producer_epoch for marker in scene.markers_in(*P0)] == [1, 2]


def test_a_refused_marker_is_sent_again_alone_while_another_is_pending() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    scene.markers.pending = {P1: None}
    scene.markers.refusals = {P0: E.KAFKA_STORAGE_ERROR}
    scene.end(pair)
    scene.markers.refusals = {}
    scene.timers.advance(MARKER_RETRY_MS)
    assert [each.partitions for each in scene.markers.sent] == [[P0, P1], [P0]]
    assert scene.state()[0] == "PrepareCommit"
    scene.markers.release(P1)
    assert scene.state()[0] == "CompleteCommit"
    assert len(scene.markers_in(*P0)) == len(scene.markers_in(*P1)) == 1


def test_a_refused_marker_stays_owed_when_the_pending_one_is_written_first() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0, P1)
    scene.markers.pending = {P1: None}
    scene.markers.refusals = {P0: E.KAFKA_STORAGE_ERROR}
    scene.end(pair)
    scene.markers.release(P1)
    assert scene.state()[0] == "PrepareCommit"
    scene.markers.refusals = {}
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state()[0] == "CompleteCommit"
    assert len(scene.markers_in(*P0)) == len(scene.markers_in(*P1)) == 1


def test_a_pending_marker_of_a_coordinator_that_is_gone_ends_nothing_and_the_next_one_sends_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.pending = {P0: None}
    scene.end(pair)
    late, scene.markers.pending = scene.markers.pending[P0], {}
    scene.restart_coordinator()
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert late is not None
    late()  # The leader refuses this late marker, because an older coordinator sent it.
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert [marker.coordinator_epoch for marker in scene.markers_in(*P0)] == [1]
    assert caplog.text == ""


def test_the_log_reports_once_which_partition_a_transaction_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.refusals = {P0: E.KAFKA_STORAGE_ERROR}
    scene.end(pair)
    assert caplog.text == "", "after a restart the first attempt may meet a partition that is loading"
    scene.timers.advance(MARKER_RETRY_MS)
    (message,) = caplog.messages
    assert message.endswith(
        "the commit of transaction 'pay' waits for orders-0, which answered the marker with"
        " KAFKA_STORAGE_ERROR; trying again"
    )
    scene.timers.advance(50 * MARKER_RETRY_MS)
    assert caplog.messages == [message]


def test_scenario_064_an_unavailable_partition_delays_only_its_own_transaction() -> None:
    scene = Scene()
    pay, ship = scene.init("pay"), scene.init("ship")
    scene.begin(pay, P0)
    scene.begin(ship, P1, transactional_id="ship")
    scene.markers.refusals = {P0: E.UNKNOWN_TOPIC_OR_PARTITION}
    scene.end(pay)
    scene.timers.advance(50_000)
    assert scene.state() == ("PrepareCommit", PID, 1)
    assert code_of(lambda: scene.init("pay")) is E.CONCURRENT_TRANSACTIONS
    scene.end(ship, transactional_id="ship")
    assert scene.state("ship")[0] == "CompleteCommit"


def test_a_marker_that_a_newer_coordinator_forbids_is_tried_until_the_restart_brings_a_newer_epoch() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    partition = scene.partition(*P0)
    foreign = marker_batch(producer_id=PID, producer_epoch=0, is_commit=False, coordinator_epoch=1, timestamp_ms=1)
    partition.append_now(foreign, origin=Origin.COORDINATOR, now_ms=scene.clock.now_ms())
    scene.end(pair)
    scene.timers.advance(10_000)
    assert scene.state() == ("PrepareCommit", PID, 1)
    scene.restart_coordinator()
    assert scene.state() == ("CompleteCommit", PID, 1)


def test_scenario_065_a_failed_write_of_a_marker_is_retried() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.disk.fail(2, Fault.ENOSPC)  # The first write records the decision.
    scene.end(pair)
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state() == ("CompleteCommit", PID, 1)
    assert len(scene.markers_in(*P0)) == 1


@pytest.mark.traceback("RuntimeError: a bug")
def test_a_bug_on_the_way_of_a_marker_does_not_leave_its_transaction_stuck() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.bug = RuntimeError("a bug")
    assert scene.end(pair).producer_epoch == 1
    scene.markers.bug = None
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state() == ("CompleteCommit", PID, 1)


def test_scenario_066_a_marker_of_an_older_coordinator_completes_nothing() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.held = []
    reply = scene.ask(scene.ending(pair), 5)
    late, scene.markers.held = scene.markers.held, []
    scene.restart_coordinator()
    assert answer_of(reply).error_code == E.NOT_COORDINATOR.value
    for answered in late:
        answered()
    assert scene.state()[0] == "PrepareCommit"
    for answered in scene.markers.held:
        answered()
    assert scene.state()[0] == "CompleteCommit"


def test_scenario_067_an_end_that_cannot_be_recorded_is_tried_again() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.held = []
    reply = scene.ask(scene.ending(pair), 5)
    held, scene.markers.held = scene.markers.held, None
    scene.disk.fail(1, Fault.ENOSPC)
    held[0]()
    assert answer_of(reply).producer_epoch == 1
    assert code_of(scene.init) is E.CONCURRENT_TRANSACTIONS
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state() == ("CompleteCommit", PID, 1)


def test_scenario_068_a_marker_for_offsets_waits_until_their_groups_are_loaded() -> None:
    scene = Scene()
    pair = scene.init()
    scene.transactions.add_partitions("pay", *pair, [OFFSETS], verify_only=False, requested_version=2)
    shard = scene.groups.shards.of_partition(OFFSETS[1])
    shard.unload()
    scene.end(pair)
    assert scene.state()[0] == "PrepareCommit"
    assert scene.markers_in(*OFFSETS) == []
    run(shard.load())
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state()[0] == "CompleteCommit"
    assert len(scene.markers_in(*OFFSETS)) == 1


def test_scenario_102_a_timeout_that_meets_a_decided_commit_leaves_it() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.markers.refusals = {P0: E.KAFKA_STORAGE_ERROR}
    scene.end(pair)
    scene.timers.advance(120_000)
    assert scene.state()[0] == "PrepareCommit"
    scene.markers.refusals = {}
    scene.timers.advance(MARKER_RETRY_MS)
    assert scene.state()[0] == "CompleteCommit"


def test_scenario_099_the_scan_aborts_what_is_open_for_too_long() -> None:
    scene = Scene()
    pair = scene.init()
    scene.begin(pair, P0)
    scene.timers.advance(60_000)
    assert scene.state()[0] == "Ongoing"
    scene.timers.advance(10_000)
    assert scene.state() == ("CompleteAbort", PID, 1)
    assert [marker.is_commit for marker in scene.markers_in(*P0)] == [False]


def test_scenario_104_ids_that_nobody_uses_are_forgotten_by_the_hourly_scan() -> None:
    scene = Scene()
    scene.init()
    scene.timers.advance(7 * 24 * 3_600_000)
    assert code_of(scene.state) is E.TRANSACTIONAL_ID_NOT_FOUND
    scene.restart_coordinator()
    assert code_of(scene.state) is E.TRANSACTIONAL_ID_NOT_FOUND


def test_scenario_108_an_id_whose_partition_is_not_there_has_no_coordinator_here() -> None:
    scene = Scene()
    scene.delete_topic(TRANSACTION_STATE)
    assert code_of(scene.init) is E.NOT_COORDINATOR


def test_scenario_108_requests_and_listings_fail_with_load_in_progress_while_loading() -> None:
    scene = Scene()
    pair = scene.init()
    held: list[Coroutine[Any, Any, None]] = []
    scene.spawn = held.append
    scene.restart_coordinator()
    assert code_of(scene.init) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(lambda: scene.end(pair)) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(lambda: all_listed(scene.transactions)) is E.COORDINATOR_LOAD_IN_PROGRESS
    (loading,) = held
    run(loading)
    assert scene.transactions.is_loaded
    assert scene.init() == (PID, 1)


def test_an_unreadable_partition_answers_load_in_progress_to_everything() -> None:
    scene = Scene()
    scene.init()
    index = scene.transactions.partition_for("pay")
    bad = build_batch([NewRecord(b"\x00\x00\x00\x03new", b"\x00\x09later", 1)], base_sequence=-1)
    scene.partition(TRANSACTION_STATE, index).append_now(bad, origin=Origin.COORDINATOR, now_ms=1)
    scene.restart_coordinator()
    assert code_of(scene.init) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(lambda: all_listed(scene.transactions)) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert not scene.transactions.is_loaded


def test_a_marker_in_the_state_topic_itself_is_passed_over() -> None:
    scene = Scene()
    scene.init()
    index = scene.transactions.partition_for("pay")
    foreign = marker_batch(producer_id=5, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=1)
    scene.partition(TRANSACTION_STATE, index).append_now(foreign, origin=Origin.COORDINATOR, now_ms=1)
    scene.restart_coordinator()
    assert scene.state() == ("Empty", PID, 0)


def test_where_settings_ask_for_it_each_step_is_on_the_disk_before_the_next() -> None:
    scene = Scene(flush_messages=1)
    init = scene.ask(InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=60_000), 5)
    assert is_parked(init)
    scene.settle()
    pair = (answer_of(init).producer_id, answer_of(init).producer_epoch)
    codes = scene.transactions.add_partitions("pay", *pair, [P0], verify_only=False, requested_version=2)
    assert isinstance(codes, Deferred)
    scene.settle()
    assert answer_of(codes) == {P0: E.NONE}
    scene.open_transaction(pair, P0)
    reply = scene.ask(scene.ending(pair), 5)
    assert scene.markers_in(*P0) == []
    scene.workers.finish_all()
    assert len(scene.markers_in(*P0)) == 1
    scene.settle()
    assert answer_of(reply).producer_epoch == 1
    assert scene.state()[0] == "CompleteCommit"


def test_a_decision_that_an_fsync_lost_is_no_answer_and_its_coordinator_serves_no_more() -> None:
    scene = Scene(flush_messages=1)
    init = scene.ask(InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=60_000), 5)
    scene.settle()
    pair = (answer_of(init).producer_id, answer_of(init).producer_epoch)
    scene.transactions.add_partitions("pay", *pair, [P0], verify_only=False, requested_version=2)
    scene.settle()
    reply = scene.ask(scene.ending(pair), 5)
    scene.disk.fail(1, Fault.EIO)
    scene.settle()
    assert answer_of(reply).error_code == E.NOT_COORDINATOR.value
    assert scene.markers_in(*P0) == []
    assert code_of(scene.state) is E.NOT_COORDINATOR
