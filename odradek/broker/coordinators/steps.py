"""Hooks between the steps of a broker. Each hook is a method that changes nothing by default.

A broker calls each method at the point described by its docstring. In a broker controlled by a test, the hooks belong
to a subclass whose methods delay, refuse or change a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource
    from odradek.broker.coordinators.transaction_markers import MarkerRound, NewMarkerRound, TopicMarkerWriter
    from odradek.broker.coordinators.verification import Verifier
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.records import Decision
    from odradek.broker.partitions.partition import Partition


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerSteps:
    """Hooks that change nothing, for a broker not controlled by a test. A method whose parameter is a part of the
    broker is called once, when the part is created. The broker then uses the method's result instead of the part."""

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        """Returns the decision to record in the metadata log instead of `decision`, which was just made."""
        return decision

    def log_created(self, partition: Partition) -> None:
        """Called with each new partition while its log is still empty."""

    def load(self, topic: str, resume: Callable[[], None]) -> None:
        """Calls `resume` as soon as partitions of a coordinator's topic may be loaded."""
        resume()

    def producer_ids(self, plain: ProducerIdSource) -> ProducerIdSource:
        """Returns the source of new producer ids."""
        return plain

    def member_id(self, plain: str) -> str:
        """Returns the id for a new group member. `plain` is the id that the broker has generated."""
        return plain

    def first_epoch(self) -> int:
        """Returns a number to add to the first epoch, or generation, of a new group."""
        return 0

    def internal_topics_delay_ms(self, heartbeat_interval_ms: int) -> int:
        """Returns the delay before a streams group's internal topics are created. Until the topics exist, members get
        the status MISSING_INTERNAL_TOPICS.

        heartbeat_interval_ms  the interval between heartbeats of the group's members
        """
        return 0

    def session_id(self, plain: int) -> int:
        """Returns the id for a new fetch session. `plain` is the id that the broker has generated."""
        return plain

    def markers(self, plain: TopicMarkerWriter) -> TopicMarkerWriter:
        """Returns the writer for the markers sent by transaction coordinators."""
        return plain

    def marker_round(self, plain: type[MarkerRound]) -> NewMarkerRound:
        """Returns a factory of marker rounds. The broker calls the factory for each decided transaction."""
        return plain

    def verifier(self, plain: Verifier) -> Verifier:
        """Returns the verifier, which asks coordinators whether partitions are part of a transaction."""
        return plain

    def persister(self, plain: Persister, image: MetadataImage) -> Persister:
        """Returns the persister that share-partition leaders use to store their state. `image` provides the topic
        names."""
        return plain
