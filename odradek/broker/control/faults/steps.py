"""Applies fault rules between the broker's own steps, and random oddities to some of these steps.

Rules can act after a transaction is verified, around the decisions and markers of transactions (`faulty_markers.py`),
before a share partition's state is stored, and before a coordinator loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.control.faults.faulty_markers import FaultyMarkers, faulty_round
from odradek.broker.control.faults.rules import Occurrence, Point
from odradek.broker.control.odd.odd_logs import OddProducerIds, begin_log
from odradek.broker.coordinators.steps import BrokerSteps
from odradek.broker.coordinators.verification import Verifier
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.control.faults.faults import Faults
    from odradek.broker.control.faults.rules import Rules
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource
    from odradek.broker.coordinators.transaction_markers import MarkerRound, NewMarkerRound, TopicMarkerWriter
    from odradek.broker.coordinators.verification import TransactionalProducer, UnverifiedBatch, VerificationResults
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.records import Decision
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.clock import Clock
    from odradek.broker.shares.core.in_flight import StateWrite
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.protocol.batch_header import BatchHeader
    from odradek.storage.verification import VerificationGuard


class PartitionPlacer(Protocol):
    """Assigns the new partitions in a decision to the nodes of a cluster."""

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        """Returns the decision with a node assigned to each new partition."""


class ControlledSteps(BrokerSteps):
    """Applies rules and oddities to the steps of a controlled broker, from startup to shutdown.

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
        self._faults.rules.pause(Point.LOADING, Occurrence(None, places=((topic, None),)), resume)

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
        return FaultyMarkers(plain, self._faults.rules)

    def marker_round(self, plain: type[MarkerRound]) -> NewMarkerRound:
        return partial(faulty_round(plain), self._faults.rules)  # type: ignore[arg-type]  # a type is hashable

    def verifier(self, plain: Verifier) -> Verifier:
        return FaultyVerifier(plain, self._faults.rules)

    def persister(self, plain: Persister, image: MetadataImage) -> Persister:
        return FaultyPersister(plain, self._faults.rules, image)


class FaultyVerifier(Verifier):
    """A verifier that applies rules after the transaction coordinator has answered.

    If a rule acts at this point, `verify_now` fails. The produce request then uses the general path, which calls
    `verify` and can wait.
    """

    def __init__(self, plain: Verifier, rules: Rules) -> None:
        super().__init__(
            plain.settings, plain.clock, plain.timers, coordinator=plain.coordinator, two_phase=plain.two_phase
        )
        self._rules = rules

    def verify_now(
        self, transactional_id: str, header: BatchHeader, partition: Partition, adds: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Like `Verifier.verify_now`, but also raises KafkaError if a rule could make the request wait."""
        if any(rule.at is Point.VERIFIED for rule in self._rules.by_name.values()):
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
            self._rules.pause(Point.VERIFIED, occurrence, lambda: then(results))

        super().verify(producer, batches, adds, verified, waits_for_the_last=waits_for_the_last)


class FaultyPersister:
    """A `Persister` that applies rules to share-partition leaders' writes to the share coordinator."""

    def __init__(self, plain: Persister, rules: Rules, image: MetadataImage) -> None:
        self._rules = rules
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
        action = self._rules.action(Point.SHARE_STATE, occurrence)
        answer: Deferred[bool] = Deferred()

        def resume() -> None:
            if action.error is not None:
                answer.fail(KafkaError(action.error))
            else:
                answer.follow(self._plain.write(key, state_epoch, leader_epoch, write, must_sync=must_sync))

        self._rules.pause_for(action, Point.SHARE_STATE, occurrence, resume)
        return answer
