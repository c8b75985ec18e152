"""Applies fault rules between the steps of the broker itself, and applies random oddities to some steps.

Rules can act after a transaction is verified, around the decisions and markers of transactions, before the state of a
share partition is stored, and before a coordinator loads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from odradek.broker.control.faults.holds import waiter_facts
from odradek.broker.control.faults.rules import OBSERVE, Action, Occurrence, Point
from odradek.broker.control.odd.odd_logs import OddProducerIds, begin_log
from odradek.broker.coordinators.steps import BrokerSteps
from odradek.broker.coordinators.verification import Verifier
from odradek.broker.runtime.clock import Scan
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.transactions.core import MARKER_RETRY_MS
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.control.faults.faults import Faults
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource
    from odradek.broker.coordinators.transaction_markers import (
        MarkerRound,
        MarkerRounds,
        MarkerWriter,
        NewMarkerRound,
        OnWritten,
        TopicMarkerWriter,
        TxnMarker,
    )
    from odradek.broker.coordinators.verification import TransactionalProducer, UnverifiedBatch, VerificationResults
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.records import Decision
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.clock import Clock, TimerHandle
    from odradek.broker.shares.core.in_flight import StateWrite
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.transactions.turn import PendingMarkers
    from odradek.protocol.batch_header import BatchHeader
    from odradek.protocol.topic_partition import PartitionCodes, TopicPartition
    from odradek.storage.verification import VerificationGuard


class PartitionPlacer(Protocol):
    """Assigns the new partitions in a decision to the nodes of a cluster."""

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        """Returns the decision with a node assigned to each new partition."""


class ControlledSteps(BrokerSteps):
    """Applies rules and oddities to the steps of a controlled broker, from its start to its stop.

    nodes  assigns new partitions to nodes; None until the broker has opened
    """

    def __init__(self, faults: Faults, clock: Clock) -> None:
        self.nodes: PartitionPlacer | None = None
        self._faults = faults
        self._clock = clock

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        if self.nodes is not None:
            decision = self.nodes.adapt_decision(decision)
        odd = self._faults.odd
        return decision if odd is None else odd.adapt_decision(decision)

    def log_created(self, partition: Partition) -> None:
        begin_log(self._faults.odd, partition, self._clock.now_ms())

    def load(self, topic: str, resume: Callable[[], None]) -> None:
        pause(self._faults, Point.LOADING, Occurrence(None, places=((topic, None),)), resume)

    def producer_ids(self, plain: ProducerIdSource) -> ProducerIdSource:
        return OddProducerIds(plain, lambda: self._faults.odd)

    def member_id(self, plain: str) -> str:
        odd = self._faults.odd
        return plain if odd is None else odd.member_id(plain)

    def first_epoch(self) -> int:
        odd = self._faults.odd
        return 0 if odd is None else odd.first_epoch()

    def internal_topics_delay_ms(self, heartbeat_interval_ms: int) -> int:
        odd = self._faults.odd
        return 0 if odd is None else odd.internal_topics_delay_ms(heartbeat_interval_ms)

    def session_id(self, plain: int) -> int:
        odd = self._faults.odd
        return plain if odd is None else odd.session_id(plain)

    def markers(self, plain: TopicMarkerWriter) -> TopicMarkerWriter:
        return FaultyMarkers(plain, self._faults)

    def marker_round(self, plain: type[MarkerRound]) -> NewMarkerRound:
        return partial(faulty_round(plain), self._faults)  # type: ignore[arg-type]  # a type is hashable

    def verifier(self, plain: Verifier) -> Verifier:
        return FaultyVerifier(plain, self._faults)

    def persister(self, plain: Persister, image: MetadataImage) -> Persister:
        return FaultyPersister(plain, self._faults, image)


def pause(
    faults: Faults,
    point: Point,
    occurrence: Occurrence,
    resume: Callable[[], None],
    *,
    is_repeated_at_start: bool = False,
) -> None:
    """Applies the rules of a point. Calls `resume` immediately, after a delay, or when a hold is released.

    is_repeated_at_start  see `Holds.add_waiter`
    """
    pause_for(
        faults, faults.action(point, occurrence), point, occurrence, resume, is_repeated_at_start=is_repeated_at_start
    )


def pause_for(
    faults: Faults,
    action: Action,
    point: Point,
    occurrence: Occurrence,
    resume: Callable[[], None],
    *,
    is_repeated_at_start: bool = False,
) -> None:
    if action.hold is not None:
        faults.holds.add_waiter(
            action.hold, object(), resume, waiter_facts(point, occurrence), is_repeated_at_start=is_repeated_at_start
        )
    elif action.delay_ms:
        faults.timers.after(action.delay_ms, resume)
    else:
        resume()


@cache
def faulty_round(plain: type[MarkerRound]) -> Callable[[Faults, MarkerRounds, PendingMarkers], MarkerRound]:
    """Returns a subclass of `plain` that applies rules.

    All clusters share this class. A class refers to itself, so with a class per cluster, deleted clusters would leave
    garbage that only the cycle collector frees.
    """

    class FaultyRound(plain):  # type: ignore[valid-type, misc]
        def __init__(self, faults: Faults, rounds: MarkerRounds, markers: PendingMarkers) -> None:
            super().__init__(rounds, markers)
            self.markers: PendingMarkers
            self._faults = faults
            self._own: frozenset[TopicPartition] = frozenset()  # markers that this round retries for the coordinator
            self._again: TimerHandle | None = None

        def start(self) -> None:
            self._pause(Point.PREPARED, super().start)

        def report_completion(self) -> None:
            self._pause(Point.COMPLETED, super().report_completion)

        def _pause(self, point: Point, resume: Callable[[], None]) -> None:
            if not self._faults.rules:
                resume()
                return

            def unless_away() -> None:
                """Continues unless another coordinator has taken over, because the new coordinator carries out the
                decision itself."""
                if not self._rounds.shard.is_away:
                    resume()

            pause(self._faults, point, self._occurrence(), unless_away, is_repeated_at_start=True)

        def report_unfinished(self, done: frozenset[TopicPartition]) -> None:
            """Takes over the retries of the missing markers if rules will refuse all of these markers until the rules
            are removed.

            This round retries as often as the coordinator would. When a test moves the clock ahead, these attempts are
            skipped, since all of them would be refused.
            """
            super().report_unfinished(done)
            if self._again is not None:
                self._again.cancel()
                self._again = None
            missing = self.markers.partitions - self._done - self._pending
            self._own = missing if missing and self._is_refused_for_good(missing) else frozenset()
            if self._own:
                attempt = Scan(self._send_again, MARKER_RETRY_MS, self._attempt_due_ms)
                self._again = self._faults.timers.after(MARKER_RETRY_MS, attempt)

        def pending_partitions(self) -> frozenset[TopicPartition]:
            pending: frozenset[TopicPartition] = super().pending_partitions()
            return pending | self._own

        def _is_refused_for_good(self, places: Collection[TopicPartition]) -> bool:
            return all(
                self._faults.refuses_for_good(marker_occurrence(self.markers.producer_id, place)) for place in places
            )

        def _attempt_due_ms(self) -> int | None:
            return None if self._is_refused_for_good(self._own) else 0

        def _send_again(self) -> None:
            self._again = None
            if not self._rounds.shard.is_away:
                self.markers = replace(self.markers, partitions=self.markers.partitions - self._done)
                self.send()

        def _occurrence(self) -> Occurrence:
            markers = self.markers
            named = {"transactional_id": (markers.transactional_id,), "producer_id": (markers.producer_id,)}
            return Occurrence(None, field_values=named, places=tuple(markers.partitions))

    return FaultyRound


def marker_occurrence(producer_id: int, place: TopicPartition) -> Occurrence:
    return Occurrence(None, field_values={"producer_id": (producer_id,)}, places=(place,))


MarkerKey: TypeAlias = "tuple[int, int, TopicPartition]"  # producer id and epoch, and the partition of the marker


@dataclass(slots=True)
class HeldMarker:
    """A transaction marker that a rule holds.

    hold    name of the hold
    marker  the marker of the newest coordinator, limited to this partition
    askers  callbacks that receive the error code when the marker is written or refused
    """

    hold: str
    marker: TxnMarker
    askers: list[Callable[[ErrorCode], None]]


class FaultyMarkers:
    """A `MarkerWriter` that applies rules to the markers between the transaction coordinators and the logs.

    A held marker is pending. The coordinator answers the client without waiting for the marker, and is notified when
    the marker is written.
    """

    def __init__(self, plain: MarkerWriter, faults: Faults) -> None:
        self._plain = plain
        self._faults = faults
        self._held: dict[MarkerKey, HeldMarker] = {}
        # Markers that were released, but are not written yet. Rules do not act on retries of these markers.
        self._released: set[MarkerKey] = set()

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        if not self._faults.rules and not self._held and not self._released:
            self._plain.write(markers, then)
            return
        # errors from rules, to which the writer's results are added
        outcomes: list[dict[TopicPartition, ErrorCode]] = []
        passed: list[TxnMarker] = []
        for number, marker in enumerate(markers):
            codes: dict[TopicPartition, ErrorCode] = {}
            going = []
            for place in marker.partitions:
                action = self._action(marker, place)
                if action.hold is not None:
                    self._hold_marker(
                        action.hold, marker, place, partial(_report_code, then, len(markers), number, place)
                    )
                elif action.error is not None:
                    codes[place] = action.error
                else:
                    going.append(place)
            outcomes.append(codes)
            passed.append(replace(marker, partitions=going))
        sent = [number for number, marker in enumerate(passed) if marker.partitions or not markers[number].partitions]
        if not sent:
            then(outcomes)
            return

        def written(results: Sequence[PartitionCodes]) -> None:
            for number, codes in zip(sent, results, strict=True):
                outcomes[number].update(codes)
                for place, code in codes.items():
                    if code is ErrorCode.NONE:
                        self._released.discard(_key(markers[number], place))
            then(outcomes)

        self._plain.write([passed[number] for number in sent], written)

    def _action(self, marker: TxnMarker, place: TopicPartition) -> Action:
        key = _key(marker, place)
        if key in self._held:
            return Action(hold=self._held[key].hold)
        if key in self._released:
            return OBSERVE
        return self._faults.action(Point.MARKER, marker_occurrence(marker.producer_id, place))

    def _hold_marker(
        self, hold: str, marker: TxnMarker, place: TopicPartition, asker: Callable[[ErrorCode], None]
    ) -> None:
        key, alone = _key(marker, place), replace(marker, partitions=[place])
        held = self._held.get(key)
        if held is not None:
            held.askers.append(asker)
            if alone.coordinator_epoch >= held.marker.coordinator_epoch:
                held.marker = alone
            return
        self._held[key] = HeldMarker(hold, alone, [asker])
        about = waiter_facts(Point.MARKER, marker_occurrence(marker.producer_id, place))
        self._faults.holds.add_waiter(hold, key, partial(self._release, key), about, is_repeated_at_start=True)

    def _release(self, key: MarkerKey) -> Deferred[None]:
        """Writes the marker. Returns a Deferred that resolves when the partition's leader has reported the result."""
        held = self._held.pop(key)
        ended: Deferred[None] = Deferred()
        self._released.add(key)

        def written(results: Sequence[PartitionCodes]) -> None:
            (code,) = results[0].values()
            if code is ErrorCode.NONE:
                self._released.discard(key)
            for tell in held.askers:
                tell(code)
            ended.resolve(None)

        self._plain.write([held.marker], written)
        return ended

    def topic_deleted(self, topic: str) -> None:
        # If a topic of the same name is created later, it is a different topic, so rules act on its markers again.
        self._released = {key for key in self._released if key[2][0] != topic}
        for key, held in [(key, held) for key, held in self._held.items() if key[2][0] == topic]:
            del self._held[key]
            self._faults.holds.remove_waiter(held.hold, key)
            for tell in held.askers:
                tell(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _key(marker: TxnMarker, place: TopicPartition) -> MarkerKey:
    return marker.producer_id, marker.producer_epoch, place


def _report_code(then: OnWritten, count: int, number: int, place: TopicPartition, code: ErrorCode) -> None:
    """Passes the error code of one marker for one partition to `then`. `number` is the index of the marker among the
    `count` markers of the request; the other markers get no result."""
    then([{place: code} if each == number else {} for each in range(count)])


class FaultyVerifier(Verifier):
    """A verifier that applies rules after the transaction coordinator has answered.

    If a rule acts at this point, `verify_now` fails. The produce request then uses the general path, which calls
    `verify` and can wait.
    """

    def __init__(self, plain: Verifier, faults: Faults) -> None:
        super().__init__(
            plain.settings, plain.clock, plain.timers, coordinator=plain.coordinator, two_phase=plain.two_phase
        )
        self._faults = faults

    def verify_now(
        self, transactional_id: str, header: BatchHeader, partition: Partition, adds: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Like `Verifier.verify_now`, but also raises KafkaError if a rule could make the request wait."""
        if any(rule.at is Point.VERIFIED for rule in self._faults.rules.values()):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return super().verify_now(transactional_id, header, partition, adds, now_ms)

    def verify(
        self,
        producer: TransactionalProducer,
        batches: Sequence[UnverifiedBatch],
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
            occurrence = Occurrence(None, field_values=named, places=places)
            pause(self._faults, Point.VERIFIED, occurrence, lambda: then(results))

        super().verify(producer, batches, adds, verified, waits_for_the_last=waits_for_the_last)


class FaultyPersister:
    """A `Persister` that applies rules to the writes of share-partition leaders to the share coordinator."""

    def __init__(self, plain: Persister, faults: Faults, image: MetadataImage) -> None:
        self._faults = faults
        self._image = image
        self._plain = plain
        self.initialize = plain.initialize
        self.read = plain.read
        self.delete = plain.delete
        self.summarize = plain.summarize

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, write: StateWrite, *, must_sync: bool = False
    ) -> Deferred[bool]:
        topic = self._image.topics_by_id.get(key.topic_id)
        places = () if topic is None else ((topic.name, key.partition),)
        occurrence = Occurrence(None, field_values={"group": (key.group_id,)}, places=places)
        action = self._faults.action(Point.SHARE_STATE, occurrence)
        answer: Deferred[bool] = Deferred()

        def resume() -> None:
            if action.error is not None:
                answer.fail(KafkaError(action.error))
            else:
                answer.follow(self._plain.write(key, state_epoch, leader_epoch, write, must_sync=must_sync))

        pause_for(self._faults, action, Point.SHARE_STATE, occurrence, resume)
        return answer
