"""The client side of groups whose members join and receive their assignments through heartbeats: consumer groups
(KIP-848) and streams groups (KIP-1071)."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from bench.clients import CLIENT_TIMEOUT_S
from bench.coordinators import GROUP, await_coordinator
from bench.subjects import Subject
from bench.topics import topic
from odradek.protocol.frames import request_bytes
from odradek.protocol.struct import Message
from tests.support.wire import Wire

HEARTBEAT_VERSION: Final = 1
DESCRIBE_VERSION: Final = 1
# The client id in all requests of a Wire. A heartbeat with a different client id would be treated as a change to the
# member.
CLIENT_ID: Final = "wire"
REBALANCE_TIMEOUT_MS: Final = 60_000
ROUND_S: Final = 0.005  # pause after a round of heartbeats that changed nothing


class AssignmentResponse(Protocol):
    """The partitions or the tasks in one entry of an assignment."""

    @property
    def partitions(self) -> Sequence[int]: ...


A = TypeVar("A", bound=AssignmentResponse)


@dataclass(slots=True)
class Member(Generic[A]):
    """A member of a group driven by heartbeats.

    owned        its current assignment
    unconfirmed  the assignment that the next heartbeat must confirm, or None if the broker already knows it
    """

    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: Sequence[A] = ()
    unconfirmed: Sequence[A] | None = None


class HeartbeatGroup(ABC, Generic[A]):
    """A group whose members subscribe to one topic. Only one heartbeat is in flight at a time."""

    def __init__(self, wire: Wire, group_id: str, count: int) -> None:
        self.members: list[Member[A]] = [Member() for _ in range(count)]
        self.wire = wire
        self.group_id = group_id

    @abstractmethod
    def request(self, member: Member[A]) -> Message:
        """Returns the next heartbeat of a member, which joins if its epoch is 0."""

    @abstractmethod
    def ask(self, request: Message) -> Any:
        """Sends a heartbeat and returns its response."""

    @abstractmethod
    def assigned(self, answer: Any) -> Sequence[A] | None:
        """Returns the assignment in a heartbeat response, or None if the assignment has not changed."""

    @abstractmethod
    def state(self) -> str:
        """Returns the group's state as described by the broker."""

    def until_stable(self, partitions: int) -> None:
        """Has all members join, and then sends rounds of heartbeats until all partitions or tasks are assigned and
        owned."""
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while time.monotonic() < deadline:
            has_news = sum(self._heartbeat(member) for member in self.members) > 0
            if not has_news and self._is_stable(partitions):
                return
            if not has_news:
                time.sleep(ROUND_S)
        raise RuntimeError(f"{self.group_id} was not stable in {CLIENT_TIMEOUT_S:g} s")

    def heartbeats(self) -> bytes:
        """Returns one heartbeat for each member that changes nothing."""
        requests = [self.request(member) for member in self.members]
        return b"".join(request_bytes(request, HEARTBEAT_VERSION, 1, CLIENT_ID) for request in requests)

    def _heartbeat(self, member: Member[A]) -> bool:
        """Sends a heartbeat. Returns whether the heartbeat changed anything."""
        answer = self.ask(self.request(member))
        if answer.error_code:
            if member.epoch:
                raise RuntimeError(f"a heartbeat was refused: {answer.error_message}")
            time.sleep(ROUND_S)  # The coordinator is still loading.
            return True
        has_news = answer.member_epoch != member.epoch or member.unconfirmed is not None
        member.epoch = answer.member_epoch
        assigned = self.assigned(answer)
        member.unconfirmed = assigned
        if assigned is not None:
            member.owned = assigned
        return has_news or assigned is not None

    def _is_stable(self, partitions: int) -> bool:
        owned = sum(len(each.partitions) for member in self.members for each in member.owned)
        if owned != partitions or len({member.epoch for member in self.members}) > 1:
            return False
        return self.state() == "Stable"


@dataclass(frozen=True, slots=True)
class Stabilisation:
    """Measures how long a new group takes to become stable. The members join one by one and then send heartbeats."""

    # The arguments are the wire, the group id, the topic and the number of members.
    new_group: Callable[[Wire, str, str, int], HeartbeatGroup[Any]]
    members: int
    partitions: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns the seconds from the first join until the group is stable, and the broker's CPU time over that period
        in milliseconds."""
        with topic(subject.bootstrap, self.partitions) as name, Wire(subject.bootstrap) as wire:
            await_coordinator(wire, GROUP, f"{name}-group")
            group = self.new_group(wire, f"{name}-group", name, max(2, int(self.members * share)))
            cpu_before, began = subject.cpu_seconds(), time.perf_counter()
            group.until_stable(self.partitions)
            return {
                "seconds": time.perf_counter() - began,
                "cpu_ms": (subject.cpu_seconds() - cpu_before) * 1000,
            }
