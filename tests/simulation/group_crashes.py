"""Plays a story with the members of a group while the broker crashes at every disk call.

Wherever the broker dies, the members repeat their unanswered requests to the next broker, as clients do, and continue.
Everything that a member learned before the crash must still be true after the restart. A subclass of `GroupWorld`
defines the story and its group type's requests and responses.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.simulation.simulated_broker import Parts
from tests.simulation.stage import GROUP, Stage
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk, ProcessCrashed

SEED = int(os.environ.get("SEED", "1"))
E = ErrorCode
TOPIC = "orders"
SESSION_MS, HEARTBEAT_MS = 45_000, 5_000


@dataclass(slots=True)
class GroupMember(ABC):
    """The state of a group member, as its client sees it.

    epoch                 epoch of the last response; 0 before the member has joined
    sends_full_heartbeat  whether the next heartbeat repeats the subscription, because the last one was not answered
    """

    name: str
    instance: str | None = None
    epoch: int = 0
    sends_full_heartbeat: bool = True
    is_leaving: bool = False

    @abstractmethod
    def drop_all(self) -> None:
        """Stops all work on assigned partitions or tasks."""


M = TypeVar("M", bound=GroupMember)


class GroupStage(Stage):
    """A broker with one topic and with the group protocol's feature enabled."""

    def __init__(
        self,
        disk: FakeDisk | None,
        now_ms: int,
        *,
        partitions: int,
        feature: str,
        settings: Mapping[str, str],
        parts: Parts | None = None,
    ) -> None:
        self._partitions, self._feature = partitions, feature
        super().__init__(disk, now_ms, settings=settings, parts=parts)

    def _make_topics(self) -> None:
        offsets = internal_topic(GROUP_OFFSETS, self.config)
        assert offsets is not None
        self.broker.auto_creation.create([NewTopic(TOPIC, self._partitions, 1), offsets])
        self.broker.metadata.commit([FeatureLevelRecord(name=self._feature, feature_level=1)])


class GroupWorld(ABC, Generic[M]):
    """The progress of a story, across all brokers that it has used.

    committed  the last committed offset
    doubtful   the last offset for which a commit was sent
    done       number of completed events of the story
    """

    story: ClassVar[Sequence[Callable[[Any], None]]]

    def __init__(self, disk: FakeDisk) -> None:
        self.stage = self.broker_on(disk)
        self.members: dict[str, M] = {}
        self.committed: int = -1
        self.doubtful: int = -1
        self.done = 0

    # ---- Methods that depend on the group type.

    @staticmethod
    @abstractmethod
    def broker_on(disk: FakeDisk | None = None, now_ms: int = NOW_MS) -> GroupStage: ...

    @abstractmethod
    def beat(self, member: M) -> None:
        """Sends a heartbeat for the member and applies the response."""

    @abstractmethod
    def farewell(self, member: M, epoch: int) -> Message:
        """Returns the heartbeat that makes a member leave."""

    @abstractmethod
    def recorded(self) -> dict[str, int]:
        """Returns the epochs of the group's members by name, as the broker describes them."""

    @abstractmethod
    def check(self) -> None:
        """Checks the invariants that must hold after every event."""

    @abstractmethod
    def check_end(self) -> None:
        """Checks the final state of the story."""

    # --- The story.

    def play(self) -> None:
        while self.done < len(self.story):
            self.story[self.done](self)
            self.check()
            self.done += 1

    def fork(self: W) -> W:
        """Returns a copy of this world, so that the story can continue on one of several disk states."""
        other = copy(self)
        other.members = deepcopy(self.members)
        return other

    def restart(self, disk: FakeDisk) -> None:
        self.stage.broker.kill()
        self.stage = self.broker_on(disk, self.stage.time.now_ms())
        assert self.stage.offset() in (self.committed, self.doubtful)
        reported = {each.name: each.epoch for each in self.members.values() if each.epoch and not each.is_leaving}
        recorded = self.recorded()
        assert all(recorded.get(name, 0) >= epoch for name, epoch in reported.items()), (
            f"told {reported}, recorded {recorded}"
        )

    def joined(self, member: M, request: Callable[[], Message]) -> Any:
        """Sends a heartbeat that joins and returns the response.

        A static member that did not receive the response to its join cannot join again before its session times out,
        just as with Kafka. In this case, this method waits and joins again.
        """
        answer = self.stage.ask(request(), 1)
        if answer.error_code == E.UNRELEASED_INSTANCE_ID.value and member.epoch == 0:
            self._outlast_session(member)
            answer = self.stage.ask(request(), 1)
        return answer

    def _outlast_session(self, member: M) -> None:
        for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
            self.stage.wait(HEARTBEAT_MS)
            for other in self.members.values():
                if other is not member:
                    self.beat(other)

    def leave(self, member: M, epoch: int) -> None:
        member.is_leaving = True
        member.drop_all()
        code = E(self.stage.ask(self.farewell(member, epoch), 1).error_code)
        assert code in (E.NONE, E.UNKNOWN_MEMBER_ID), code
        del self.members[member.name]

    def commit(self, member: M, offset: int) -> None:
        self.doubtful = offset
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member.name,
            generation_id_or_member_epoch=member.epoch,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        assert self.stage.ask(request, 9).topics[0].partitions[0].error_code == 0
        self.committed = offset


W = TypeVar("W", bound=GroupWorld[Any])
Event = Callable[[GroupWorld[Any]], None]


def check_owners(work: Mapping[str, set[Any]]) -> None:
    """Checks that no two members work on the same partition or task. `work` contains the partitions or tasks by member
    name."""
    owners: dict[object, str] = {}
    for name, own in work.items():
        for each in own:
            other = owners.setdefault(each, name)
            assert other == name, f"{each} is with {other} and {name}"


# --- Events of a story.


def beats(new_member: Callable[[str], GroupMember], name: str) -> Event:
    """Returns an event in which a member sends one heartbeat. The first heartbeat joins the group."""

    def event(world: GroupWorld[Any]) -> None:
        member = world.members.get(name)
        if member is None:
            member = world.members[name] = new_member(name)
        world.beat(member)

    return event


def leaves(name: str, epoch: int = -1) -> Event:
    return lambda world: world.leave(world.members[name], epoch)


def commits(name: str, offset: int) -> Event:
    return lambda world: world.commit(world.members[name], offset)


def waits(world: GroupWorld[Any]) -> None:
    """Lets some time pass, for example for a timer that resolves a regular expression or creates topics."""
    world.stage.wait(100)


# --- Crashes.


def prepared_disk(broker_on: Callable[[], GroupStage]) -> FakeDisk:
    """Returns the disk of a broker that was killed after it had created its topic and enabled the feature."""
    stage = broker_on()
    stage.broker.kill()
    return stage.disk.after_kill()


def calls_of(new_world: Callable[[FakeDisk], W], disk: FakeDisk) -> int:
    """Returns the number of disk calls in the story."""
    world = new_world(disk.after_kill())
    start = world.stage.disk.calls
    world.play()
    world.stage.broker.kill()
    return world.stage.disk.calls - start


def crashed(new_world: Callable[[FakeDisk], W], prepared: FakeDisk, call: int, *, half_write: bool = False) -> W:
    """Plays the story until the broker dies before this disk call or, if `half_write` is true, in the middle of it."""
    world = new_world(prepared.after_kill())
    world.stage.disk.crash_before(call, half_write=half_write)
    try:
        world.play()
    except ProcessCrashed:
        pass
    else:
        raise AssertionError("it did not crash where it should")
    return world


def continue_story(world: GroupWorld[Any], disk: FakeDisk, why: str) -> None:
    """Starts a broker on the disk, plays the rest of the story, and checks its end."""
    try:
        world.restart(disk)
        world.play()
        world.check_end()
    except AssertionError as failure:
        raise AssertionError(f"{why}, in event {world.done}: {failure}") from failure
    finally:
        world.stage.broker.kill()


def play_without_a_crash(new_world: Callable[[FakeDisk], W], prepared: FakeDisk) -> None:
    world = new_world(prepared.after_kill())
    world.play()
    continue_story(world, world.stage.disk.after_kill(), "restarted at the end")


def kill_at_every_call(new_world: Callable[[FakeDisk], W], prepared: FakeDisk, *, half_write: bool) -> None:
    for call in range(1, calls_of(new_world, prepared) + 1):
        world = crashed(new_world, prepared, call, half_write=half_write)
        continue_story(
            world, world.stage.disk.after_kill(), f"killed at call {call}, after {world.stage.disk.log[-2:]}"
        )


def fail_power_at_every_call(new_world: Callable[[FakeDisk], W], prepared: FakeDisk) -> None:
    for call in range(1, calls_of(new_world, prepared) + 1):
        world = crashed(new_world, prepared, call)
        for state in world.stage.disk.after_power_failure(SEED + call, random_states=1):
            continue_story(world.fork(), state.disk, f"power failed at call {call}, {state.name}")
