"""The steps of a broker between which something else may be put, each as a method that leaves everything as it is.

A broker calls these methods at the points that their docstrings name. Brokers under the control of a test are given an
object of a subclass, which holds, refuses or changes what comes by.
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
    """The steps of a broker that nobody controls. A method that gets a part of the broker is called once, when the part
    is made, and what it returns takes the place of the part."""

    def placed(self, decision: Decision[Any]) -> Decision[Any]:
        """Returns what is recorded in the metadata log in the place of a decision that has just been taken."""
        return decision

    def log_begun(self, partition: Partition) -> None:
        """Is told of each new partition, whose log is still empty."""

    def load(self, topic: str, go_on: Callable[[], None]) -> None:
        """Calls `go_on` when partitions of a coordinator's topic may be loaded."""
        go_on()

    def producer_ids(self, plain: ProducerIdSource) -> ProducerIdSource:
        """Returns the source of the producer ids that are given out."""
        return plain

    def member_id(self, plain: str) -> str:
        """Returns the id of a new member of a group, for which the broker has drawn `plain`."""
        return plain

    def first_epoch(self) -> int:
        """Returns what is added to the first epoch, or generation, of a new group."""
        return 0

    def session_id(self, plain: int) -> int:
        """Returns the id of a new fetch session, for which the broker has drawn `plain`."""
        return plain

    def markers(self, plain: TopicMarkerWriter) -> TopicMarkerWriter:
        """Returns the writer of the markers that transaction coordinators send."""
        return plain

    def marker_round(self, plain: type[MarkerRound]) -> NewMarkerRound:
        """Returns what makes the round of markers of one decided transaction."""
        return plain

    def verifier(self, plain: Verifier) -> Verifier:
        """Returns what asks coordinators whether partitions are in a transaction."""
        return plain

    def persister(self, plain: Persister, image: MetadataImage) -> Persister:
        """Returns what the leaders of share partitions store their state with. image: has the names of topics"""
        return plain
