"""Rules between the steps of the broker itself: behind verifications, around decisions and markers of transactions,
before the state of share partitions is stored, and before coordinators load. Each stands in place of the plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from odradek.broker.clusters.holds import held_at
from odradek.broker.clusters.odd_logs import OddProducerIds, begin_log
from odradek.broker.clusters.rules import Action, Point, Seen
from odradek.broker.coordinators.verification import Verifier
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.clusters.faults import Faults
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.coordinators.transaction_markers import (
        MarkerRound,
        MarkerRounds,
        MarkerWriter,
        OnWritten,
        TxnMarker,
    )
    from odradek.broker.coordinators.verification import TransactionalProducer, Unverified, VerificationResults
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.clock import TimerHandle
    from odradek.broker.shares.core.in_flight import StateWrite
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.transactions.turn import MarkersOwed
    from odradek.protocol.batch_header import BatchHeader
    from odradek.protocol.topic_partition import PartitionCodes, TopicPartition
    from odradek.storage.verification import VerificationGuard


SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 100, 5_000  # between attempts at held markers


def put_steps(broker: Broker, faults: Faults) -> None:
    """Before the broker has any coordinator."""
    broker.wrap_markers = lambda plain: FaultyMarkers(plain, faults)
    broker.marker_round = lambda plain: partial(faulty_round(plain), faults)  # type: ignore[arg-type]  # a type is hashable
    broker.wrap_verifier = lambda plain: FaultyVerifier(plain, faults)
    broker.wrap_persister = lambda plain: FaultyPersister(plain, faults, broker)
    broker.member_id = lambda plain: plain if faults.odd is None else faults.odd.member_id(plain)
    broker.first_epoch = lambda: 0 if faults.odd is None else faults.odd.first_epoch()
    broker.session_id = lambda plain: plain if faults.odd is None else faults.odd.session_id(plain)
    broker.wrap_producer_ids = lambda plain: OddProducerIds(plain, lambda: faults.odd)
    broker.log_begun = lambda partition: begin_log(faults.odd, partition, broker.clock.now_ms())
    plain_loader = broker.loader

    def load(coroutine: Coroutine[Any, Any, None], topic: str) -> None:
        pause(faults, Point.LOADING, Seen(None, places=((topic, None),)), lambda: plain_loader(coroutine, topic))

    broker.loader = load


def pause(faults: Faults, point: Point, seen: Seen, go_on: Callable[[], None]) -> None:
    """Goes on at once, after a delay, or when a hold is released."""
    pause_for(faults, faults.action(point, seen), point, seen, go_on)


def pause_for(faults: Faults, action: Action, point: Point, seen: Seen, go_on: Callable[[], None]) -> None:
    if action.hold is not None:
        faults.holds.wait(action.hold, object(), go_on, held_at(point, seen))
    elif action.delay_ms:
        faults.timers.after(action.delay_ms, go_on)
    else:
        go_on()


@cache
def faulty_round(plain: type[MarkerRound]) -> Callable[[Faults, MarkerRounds, MarkersOwed], MarkerRound]:
    """Makes one class for all clusters: a class refers to itself, and goes with the garbage collector only."""

    class FaultyRound(plain):  # type: ignore[valid-type, misc]
        def __init__(self, faults: Faults, rounds: MarkerRounds, owed: MarkersOwed) -> None:
            super().__init__(rounds, owed)
            self._faults = faults
            self._pause_ms = 0  # before the next attempt but one; the coordinator's own timer comes first
            self._pause: TimerHandle | None = None

        def send(self) -> None:
            """Several attempts a second at markers that are held would be most of what a moved clock has to run."""
            owed = self.owed
            keys = {(owed.producer_id, owed.producer_epoch, place) for place in owed.partitions}
            if not self._pause_ms or not keys or not self._faults.holds.also(keys, self._again):
                self._pause_ms = SHORTEST_PAUSE_MS
                super().send()
                return
            self._pause = self._faults.timers.after(self._pause_ms, self._again)
            self._pause_ms = min(LONGEST_PAUSE_MS, 2 * self._pause_ms)

        def _again(self) -> None:
            """Has the coordinator that there is by now try again."""
            pause, self._pause = self._pause, None
            if pause is None:
                return
            pause.cancel()
            name = self.owed.transactional_id
            if self._rounds.shard.tidy(lambda core, _: core.send_later(name)):
                self._rounds.late[name] = self

        def prepared(self) -> None:
            if not self._faults.rules:
                super().prepared()
                return
            pause(self._faults, Point.PREPARED, self._seen(), super().prepared)

        def completed(self) -> None:
            if not self._faults.rules:
                super().completed()
                return
            pause(self._faults, Point.COMPLETED, self._seen(), super().completed)

        def _seen(self) -> Seen:
            owed = self.owed
            named = {"transactional_id": (owed.transactional_id,), "producer_id": (owed.producer_id,)}
            return Seen(None, named=named, places=tuple(owed.partitions))

    return FaultyRound


class FaultyMarkers:
    """Between transaction coordinators and the logs; `MarkerWriter`.

    A marker that is held is refused for the moment, as by a leader that is elsewhere. So the coordinator does what it
    does with any marker that is late: it answers the client, and tries again soon.
    """

    def __init__(self, plain: MarkerWriter, faults: Faults) -> None:
        self._plain = plain
        self._faults = faults
        self._held: set[tuple[int, int, TopicPartition]] = set()
        self._released: set[tuple[int, int, TopicPartition]] = set()  # and not written yet

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        if not self._faults.rules and not self._held and not self._released:
            self._plain.write(markers, then)
            return
        refused: list[dict[TopicPartition, ErrorCode]] = []
        passed: list[TxnMarker] = []
        for marker in markers:
            codes = {}
            for each in marker.partitions:
                code = self._refusal(marker, each)
                if code is not None:
                    codes[each] = code
            refused.append(codes)
            passed.append(replace(marker, partitions=[each for each in marker.partitions if each not in codes]))
        going = [number for number, marker in enumerate(passed) if marker.partitions or not markers[number].partitions]
        if not going:
            then(refused)
            return

        def written(results: Sequence[PartitionCodes]) -> None:
            for number, codes in zip(going, results, strict=True):
                refused[number].update(codes)
                for place, code in codes.items():
                    if code is ErrorCode.NONE:
                        self._released.discard((markers[number].producer_id, markers[number].producer_epoch, place))
            then(refused)

        self._plain.write([passed[number] for number in going], written)

    def _refusal(self, marker: TxnMarker, place: TopicPartition) -> ErrorCode | None:
        key = (marker.producer_id, marker.producer_epoch, place)
        if key in self._held:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if key in self._released:
            return None
        seen = Seen(None, named={"producer_id": (marker.producer_id,)}, places=(place,))
        action = self._faults.action(Point.MARKER, seen)
        if action.hold is None:
            return action.error
        self._held.add(key)

        def released() -> None:
            self._held.discard(key)
            self._released.add(key)

        self._faults.holds.wait(action.hold, key, released, held_at(Point.MARKER, seen))
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


class FaultyVerifier(Verifier):
    """Between partitions that transactions write to and their coordinators. A rule behind the answer needs the way of
    `verify`, which may wait."""

    def __init__(self, plain: Verifier, faults: Faults) -> None:
        super().__init__(plain.settings, plain.clock, plain.timers, coordinator=plain.coordinator)
        self._faults = faults

    def verified_at_once(
        self, transactional_id: str, header: BatchHeader, partition: Partition, adds: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Raises KafkaError."""
        if any(rule.at is Point.VERIFIED for rule in self._faults.rules.values()):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return super().verified_at_once(transactional_id, header, partition, adds, now_ms)

    def verify(
        self,
        producer: TransactionalProducer,
        batches: Sequence[Unverified],
        adds: bool,
        then: Callable[[VerificationResults], None],
        *,
        waits_for_the_last: bool,
    ) -> None:
        named = {"transactional_id": (producer.transactional_id,), "producer_id": (producer.producer_id,)}
        places = tuple((each.partition.topic, each.partition.index) for each in batches)

        def verified(results: VerificationResults) -> None:
            if any(isinstance(each, KafkaError) for each in results.values()):
                then(results)
                return
            seen = Seen(None, named=named, places=places)
            pause(self._faults, Point.VERIFIED, seen, lambda: then(results))

        super().verify(producer, batches, adds, verified, waits_for_the_last=waits_for_the_last)


class FaultyPersister:
    """Between leaders of share partitions and the share coordinator; `Persister`. Only writes wait or fail."""

    def __init__(self, plain: Persister, faults: Faults, broker: Broker) -> None:
        self._faults = faults
        self._broker = broker
        self._plain = plain
        self.initialize = plain.initialize
        self.read = plain.read
        self.delete = plain.delete
        self.summarize = plain.summarize

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, write: StateWrite, *, must_sync: bool = False
    ) -> Deferred[bool]:
        topic = self._broker.metadata.image.topics_by_id.get(key.topic_id)
        places = () if topic is None else ((topic.name, key.partition),)
        seen = Seen(None, named={"group": (key.group_id,)}, places=places)
        action = self._faults.action(Point.SHARE_STATE, seen)
        answer: Deferred[bool] = Deferred()

        def go_on() -> None:
            if action.error is not None:
                answer.fail(KafkaError(action.error))
            else:
                answer.follow(self._plain.write(key, state_epoch, leader_epoch, write, must_sync=must_sync))

        pause_for(self._faults, action, Point.SHARE_STATE, seen, go_on)
        return answer
