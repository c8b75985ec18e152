"""Tests that a shard decides, appends, replays, settles and replies in this order, or does none of these if the append
fails. A shard is the code around a coordinator core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from odradek.broker.coordinators.shard import RETRY_TIMER_MS, Shard
from odradek.broker.coordinators.shard_records import RecordFormat
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import BatchHeader, NewRecord, build_batch, read_batch_header, records_of
from odradek.storage.verification import VerificationGuard
from tests.support.clock import ManualClock, ManualTimers

FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")


class Log:
    """An in-memory `ShardLog`. `synced` completes the requests waiting for the disk."""

    def __init__(self, *batches: bytearray) -> None:
        self.batches = list(batches)
        self.end_offset = 0
        self.max_batch_bytes = 1_000_000
        self.failure: KafkaError | None = None
        self.waits_for_sync = False
        self._waiting: list[Callable[[KafkaError | None], None]] = []

    @property
    def is_empty(self) -> bool:
        return not self.batches

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> int:
        if self.failure is not None:
            raise self.failure
        base_offset = self.end_offset
        self.batches.append(batch)
        self.end_offset += read_batch_header(batch).record_count
        return base_offset

    def is_durable(self, *, must_sync: bool) -> bool:
        return not (self.waits_for_sync or must_sync)

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        if self.waits_for_sync or must_sync:
            self._waiting.append(action)
        else:
            action(None)

    def synced(self, failure: KafkaError | None = None) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action(failure)

    async def read(self) -> AsyncIterator[bytes]:
        for batch in self.batches:
            yield bytes(batch)

    def words(self) -> list[str]:
        return [record.value.decode() for batch in self.batches for record in records_of(batch) if record.value]


@dataclass(frozen=True)
class FakeOutcome:
    """An outcome for the tests: the words to record, the replies with their receivers, and the timers."""

    response: str | None = None
    records: tuple[str, ...] = ()
    replies: tuple[Reply, ...] = ()
    timers: tuple[Timer, ...] = ()
    may_split: bool = False
    must_sync: bool = False
    markers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    token: Deferred[str]
    message: str


@dataclass(frozen=True)
class Timer:
    key: str
    delay_ms: int | None


class Core:
    """A core that notes the replayed words and makes the decisions that the test specifies."""

    def __init__(self) -> None:
        self.words: list[tuple[str, int, int]] = []
        self.markers: list[tuple[int, bool]] = []
        self.settled = 0
        self.fired: list[str] = []
        self.on_fire = FakeOutcome()
        self.parked: list[Deferred[str]] = []
        self.breaks_at: str | None = None

    def replay(self, record: str, record_offset: int, producer_id: int) -> None:
        if record == self.breaks_at:
            raise RuntimeError("a bug")
        self.words.append((record, record_offset, producer_id))

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        self.markers.append((producer_id, committed))

    def settle(self, outcome: object) -> None:
        self.settled += 1

    def on_loaded(self, now_ms: int) -> Any:
        return FakeOutcome(timers=(Timer("loaded", 100),))

    def on_timer(self, key: str, now_ms: int) -> Any:
        self.fired.append(key)
        return self.on_fire

    def unload(self, code: ErrorCode) -> list[Reply]:
        return [Reply(token, code.name) for token in self.parked]


def encode(word: str) -> tuple[bytes, bytes | None]:
    return b"word", word.encode()


def decode(key: bytes | None, value: bytes | None) -> str | None:
    if value == b"garbage":
        raise MalformedMessage("cannot be read")
    return None if value is None or value == b"from the future" else value.decode()


class Stage:
    def __init__(self, log: Log | None = None) -> None:
        self.log = log or Log()
        self.cores: list[Core] = []
        self.timers = ManualTimers(ManualClock(1_000))
        self.send_markers: Callable[[Any, KafkaError | None], None] = lambda *_: None
        self.shard: Shard[Any] = Shard(
            "words-0",
            self.log,
            self._new_core,
            RecordFormat(encode, decode),
            self.timers.clock,
            self.timers,
            send_markers=lambda markers, failure: self.send_markers(markers, failure),
        )
        asyncio.run(self.shard.load())

    def _new_core(self) -> Core:
        self.cores.append(Core())
        return self.cores[-1]

    @property
    def core(self) -> Core:
        return self.cores[-1]

    def say(self, said: FakeOutcome, parked: Deferred[str] | None = None) -> Any:
        return self.shard.submit(lambda core, now_ms: said, parked)


def word(*words: str, **how: Any) -> bytearray:
    return build_batch([NewRecord(*encode(each), 5) for each in words], **how)


# Turns


def test_a_turn_is_recorded_replayed_settled_and_answered() -> None:
    stage = Stage()
    settled = stage.core.settled
    assert stage.say(FakeOutcome("done", ("a", "b"))) == "done"
    assert stage.log.words() == ["a", "b"]
    assert stage.core.words == [("a", 0, -1), ("b", 1, -1)]
    assert stage.core.settled == settled + 1


def test_a_coordinators_batch_begins_at_sequence_zero_without_a_producer() -> None:
    stage = Stage()
    stage.say(FakeOutcome("done", ("a",)))
    header = read_batch_header(stage.log.batches[0])
    assert (header.base_sequence, header.producer_id, header.is_transactional) == (0, -1, False)
    assert header.base_timestamp == 1_000


def test_a_turn_that_cannot_be_written_changes_nothing() -> None:
    stage = Stage()
    settled = stage.core.settled
    stage.log.failure = FULL
    with pytest.raises(KafkaError) as refused:
        stage.say(FakeOutcome("done", ("a",), timers=(Timer("t", 10),)))
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert stage.core.words == []
    assert stage.core.settled == settled
    assert stage.timers.armed() == [100]


def test_a_batch_that_is_too_large_is_refused_whole() -> None:
    stage = Stage()
    stage.log.max_batch_bytes = 100
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        stage.say(FakeOutcome("done", ("x" * 40, "y" * 40)))
    assert stage.log.batches == []


def test_records_that_do_not_belong_together_may_go_in_several_batches() -> None:
    stage = Stage()
    stage.log.max_batch_bytes = 120
    stage.say(FakeOutcome("done", tuple("x" * 20 for _ in range(8)), may_split=True))
    assert len(stage.log.words()) == 8
    assert len(stage.log.batches) > 1
    assert [offset for _, offset, _ in stage.core.words] == list(range(8))


def test_a_later_turn_can_answer_a_waiting_request() -> None:
    stage = Stage()
    waiting: Deferred[str] = Deferred()
    assert stage.say(FakeOutcome(), waiting) is waiting
    assert not waiting.is_done
    stage.say(FakeOutcome("mine", replies=(Reply(waiting, "yours"),)))
    assert waiting.outcome() == "yours"


def test_the_result_of_a_turn_is_converted_by_finish() -> None:
    stage = Stage()
    assert stage.shard.submit(lambda core, now_ms: FakeOutcome("done"), finish=str.upper) == "DONE"


# Turns that follow another turn


def test_a_turn_that_follows_runs_when_the_turn_under_way_has_ended() -> None:
    stage = Stage()
    order: list[str] = []

    def send(markers: Sequence[str], failure: KafkaError | None) -> None:
        stage.shard.follow_up(lambda: order.append(stage.say(FakeOutcome("second", ("b",)))))
        order.append("the first turn goes on")

    stage.send_markers = send
    assert stage.say(FakeOutcome("first", ("a",), markers=("owed",))) == "first"
    assert order == ["the first turn goes on", "second"]
    assert stage.log.words() == ["a", "b"]


def test_a_turn_that_follows_nothing_runs_at_once() -> None:
    stage = Stage()
    stage.shard.follow_up(lambda: stage.say(FakeOutcome("done", ("a",))))
    assert stage.log.words() == ["a"]


def test_follow_up_turns_run_in_the_order_of_their_requests() -> None:
    stage = Stage()
    order: list[str] = []

    def first() -> None:
        stage.shard.follow_up(partial(order.append, "third"))
        order.append("first")

    def send(markers: Sequence[str], failure: KafkaError | None) -> None:
        for turn in (first, partial(order.append, "second")):
            stage.shard.follow_up(turn)

    stage.send_markers = send
    stage.say(FakeOutcome("done", markers=("owed",)))
    assert order == ["first", "second", "third"]


@pytest.mark.traceback("IndexError: no such thing")
def test_a_bug_in_a_turn_that_follows_is_logged_and_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    def bug() -> None:
        raise IndexError("no such thing")

    stage.send_markers = lambda *_: stage.shard.follow_up(bug)
    with caplog.at_level(logging.ERROR):
        assert stage.say(FakeOutcome("done", ("a",), markers=("owed",))) == "done"
    assert "no such thing" in caplog.text
    stage.send_markers = lambda *_: None
    stage.shard.follow_up(lambda: stage.say(FakeOutcome("done", ("b",))))
    assert stage.log.words() == ["a", "b"]


def test_a_turn_that_is_refused_still_lets_others_follow_later() -> None:
    stage = Stage()
    stage.log.failure = FULL
    with pytest.raises(KafkaError):
        stage.say(FakeOutcome("done", ("a",)))
    stage.log.failure = None
    stage.shard.follow_up(lambda: stage.say(FakeOutcome("done", ("b",))))
    assert stage.log.words() == ["b"]


# Durability


def test_markers_wait_for_the_disk_and_come_after_the_replies() -> None:
    stage = Stage()
    stage.log.waits_for_sync = True
    seen: list[tuple[bool, KafkaError | None]] = []
    answers: list[Any] = []
    stage.send_markers = lambda _, failure: seen.append((answers[-1].is_done, failure))
    answers.append(stage.say(FakeOutcome("mine", ("a",), markers=("owed",))))
    assert seen == []
    stage.log.synced()
    assert seen == [(True, None)]


def test_when_the_disk_fails_the_sender_of_markers_gets_the_error() -> None:
    stage = Stage()
    stage.log.waits_for_sync = True
    failures: list[KafkaError | None] = []
    stage.send_markers = lambda _, failure: failures.append(failure)
    stage.say(FakeOutcome("mine", ("a",), markers=("owed",)))
    stage.log.synced(FULL)
    (failure,) = failures
    assert failure is not None
    assert failure.code is ErrorCode.NOT_COORDINATOR


def test_replies_wait_for_the_disk_where_settings_say_so() -> None:
    stage = Stage()
    stage.log.waits_for_sync = True
    waiting: Deferred[str] = Deferred()
    answer = stage.say(FakeOutcome("mine", ("a",), replies=(Reply(waiting, "yours"),)))
    assert isinstance(answer, Deferred)
    assert not answer.is_done
    assert not waiting.is_done
    stage.log.synced()
    assert (answer.outcome(), waiting.outcome()) == ("mine", "yours")


def test_an_answer_without_records_waits_too_since_it_may_rest_on_some() -> None:
    stage = Stage()
    stage.log.waits_for_sync = True
    answer = stage.say(FakeOutcome("mine"))
    assert isinstance(answer, Deferred)
    assert not answer.is_done


def test_when_the_sync_fails_all_replies_fail() -> None:
    stage = Stage()
    stage.log.waits_for_sync = True
    waiting: Deferred[str] = Deferred()
    answer = stage.say(FakeOutcome("mine", ("a",), replies=(Reply(waiting, "yours"),)))
    stage.log.synced(FULL)
    for each in (answer, waiting):
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            each.outcome()


# Timers


def test_a_timer_that_is_put_off_again_and_again_is_armed_once_and_fires_in_time() -> None:
    stage = Stage()
    for _ in range(10):
        stage.say(FakeOutcome("x", timers=(Timer("t", 50),)))
        stage.timers.advance(1)
    assert stage.timers.armed().count(40) == 1  # armed for the first request's time, not the tenth's
    stage.timers.advance(48)
    assert stage.core.fired == []
    stage.timers.advance(1)
    assert stage.core.fired == ["t"]


def test_a_timer_is_brought_forward_and_one_that_was_put_off_is_disarmed() -> None:
    stage = Stage()
    stage.say(FakeOutcome("x", timers=(Timer("t", 50), Timer("u", 50))))
    stage.say(FakeOutcome("x", timers=(Timer("t", 20), Timer("u", 90), Timer("v", 10), Timer("v", None))))
    stage.timers.advance(20)
    assert stage.core.fired == ["t"]
    stage.say(FakeOutcome("x", timers=(Timer("u", None),)))
    stage.timers.advance(75)
    assert stage.core.fired == ["t"]


def test_a_timers_outcome_is_recorded_like_a_requests() -> None:
    stage = Stage()
    stage.core.on_fire = FakeOutcome(records=("late",))
    stage.timers.advance(100)
    assert stage.log.words() == ["late"]


def test_a_timer_whose_outcome_cannot_be_written_fires_again() -> None:
    stage = Stage()
    stage.core.on_fire = FakeOutcome(records=("late",))
    stage.log.failure = FULL
    stage.timers.advance(100)
    stage.log.failure = None
    stage.timers.advance(RETRY_TIMER_MS)
    assert stage.core.fired == ["loaded", "loaded"]
    assert stage.log.words() == ["late"]


def test_maintenance_that_cannot_be_written_changes_nothing() -> None:
    stage = Stage()
    stage.log.failure = FULL
    stage.shard.submit_maintenance(lambda core, now_ms: FakeOutcome(records=("old",)))
    assert stage.core.words == []


# Loading and unloading


def test_loading_replays_records_and_markers_in_the_order_of_the_log() -> None:
    marker = marker_batch(producer_id=7, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=5)
    in_transaction = word("b", base_offset=3, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    stage = Stage(Log(word("a", base_offset=2), in_transaction, marker))
    assert stage.core.words == [("a", 2, -1), ("b", 3, 7)]
    assert stage.core.markers == [(7, True)]
    assert stage.timers.armed() == [100]


def test_a_record_of_a_kind_that_we_do_not_know_is_passed_over() -> None:
    assert Stage(Log(word("a", "from the future", "b"))).core.words == [("a", 0, -1), ("b", 2, -1)]


def test_a_shard_that_is_not_loaded_answers_load_in_progress() -> None:
    stage = Stage()
    fresh: Shard[Any] = Shard("words-1", Log(), Core, RecordFormat(encode, decode), stage.timers.clock, stage.timers)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        fresh.submit(lambda core, now_ms: FakeOutcome("x"))
    assert not fresh.is_away


def test_a_shard_with_an_unreadable_record_is_not_served() -> None:
    stage = Stage(Log(word("a"), word("garbage", base_offset=1), word("b", base_offset=2)))
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        stage.say(FakeOutcome("x"))
    assert stage.shard.is_away


def test_records_that_loading_produces_are_written_once_the_disk_works_again() -> None:
    stage = Stage()
    log = Log()

    class Overdue(Core):
        def on_loaded(self, now_ms: int) -> Any:
            return FakeOutcome(records=("due",), timers=(Timer("loaded", 100),))

    log.failure = FULL
    shard: Shard[Any] = Shard("words-1", log, Overdue, RecordFormat(encode, decode), stage.timers.clock, stage.timers)
    asyncio.run(shard.load())
    assert shard.is_loaded
    log.failure = None
    stage.timers.advance(RETRY_TIMER_MS)
    assert log.words() == ["due"]


def test_unload_fails_waiting_requests_and_stops_the_timers() -> None:
    stage = Stage()
    waiting: Deferred[str] = Deferred()
    stage.core.parked.append(waiting)
    stage.shard.unload()
    assert waiting.outcome() == "NOT_COORDINATOR"
    assert stage.timers.armed() == []
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        stage.say(FakeOutcome("x"))


@pytest.mark.traceback("RuntimeError: a bug")
def test_a_core_that_fails_to_replay_its_own_records_is_not_used_again() -> None:
    stage = Stage()
    stage.core.breaks_at = "b"
    with pytest.raises(RuntimeError, match="a bug"):
        stage.say(FakeOutcome("x", ("a", "b")))
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        stage.say(FakeOutcome("x"))
    asyncio.run(stage.shard.load())
    assert [said for said, _, _ in stage.core.words] == ["a", "b"]


def test_a_marker_that_is_appended_while_it_serves_is_replayed() -> None:
    stage = Stage()
    stage.shard.complete_transaction(7, 0, committed=False)
    assert stage.core.markers == [(7, False)]
