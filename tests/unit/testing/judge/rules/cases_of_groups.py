"""Cases for the GRP and 848 rules. For each rule, one trace keeps the rule and one breaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.client.common.values import TopicPartition
from odradek.client.consuming.assignors import MemberSubscription, assignment_bytes, subscription_bytes
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from tests.support.judged_cases import Case, Story, join
from tests.support.traces import Peer, Trace


def heartbeat(peer: Peer, *, error: int = 0, member: str = "m", generation: int = 1, after_ms: float = 1000) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    peer.ask(request, 4, HeartbeatResponse(error_code=error), after_ms=after_ms)


def sync(peer: Peer, error: int = 0) -> None:
    peer.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), 5, SyncGroupResponse(error_code=error))


def commit(peer: Peer, epoch: int = 1, *, member: str = "m", error: int = 0, version: int = 8) -> None:
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member)
    part = OffsetCommitResponsePartition(partition_index=0, error_code=error)
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[part])])
    peer.ask(request, version, answer)


def given_an_id(then: str) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "", given="m", error=79)
        join(peer, then, given=then or "n")

    return story


def given_an_id_at_once(later: str) -> Story:
    """Returns a story in which a member joins with its new id so soon that the judge does not yet assume that the
    member knows the id.

    Later, the member joins once more: as a new member if `later` is empty, and otherwise with the id `later`.
    """

    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "", given="m", error=79)
        join(peer, "m", after_ms=1, behind=True)
        heartbeat(peer, error=25)
        join(peer, later, given="n", error=0 if later else 79, after_ms=1, behind=True)
        join(peer, "n", generation=2)

    return story


def heartbeats_every(ms: float) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m")
        heartbeat(peer, after_ms=ms)

    return story


def rebalance(then: str) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m")
        heartbeat(peer, error=27)
        join(peer, then, given=then or "n", generation=2)

    return story


def never_joins_again(trace: Trace) -> None:
    peer = trace.connect()
    join(peer, "m")
    for _ in range(90):
        heartbeat(peer, error=27)


def rejected(code: int, then: str) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m")
        heartbeat(peer, error=code)
        join(peer, then, given=then or "n", generation=2)

    return story


def fenced(goes_on: bool) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m", instance="i")
        heartbeat(peer, error=82)
        if goes_on:
            join(peer, "m", instance="i")

    return story


def commits(*generations: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m")
        for generation in generations:
            commit(peer, generation)

    return story


def commits_in_a_rebalance(count: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m")
        join(peer, "m")
        for _ in range(count):
            commit(peer)

    return story


def syncs_at_once(two: bool) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        join(peer, "m")
        sync(peer)
        if two:
            del trace.entries[-2:]
            sync(trace.connect())

    return story


def reason_of(size: int) -> Story:
    return lambda trace: join(trace.connect(), "m", reason="r" * size)


def looks_again(trace: Trace) -> None:
    peer = trace.connect()
    join(peer, "m")
    heartbeat(peer, error=27)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse())


def beats_without_joining(trace: Trace) -> None:
    heartbeat(trace.connect(), member="", generation=-1)


class Member:
    """A member of a consumer group."""

    def __init__(self, trace: Trace) -> None:
        self.peer = trace.connect()

    def beat(
        self,
        epoch: int,
        answered: int | None = None,
        *,
        error: int = 0,
        member: str = "m",
        names: list[str] | None = None,
        full: bool = False,
        after_ms: float = 5000,
    ) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=300_000 if full else -1,
            subscribed_topic_names=["t"] if full else names,
            topic_partitions=[] if full else None,
        )
        answer = ConsumerGroupHeartbeatResponse(
            error_code=error,
            member_id=member,
            member_epoch=epoch if answered is None else answered,
            heartbeat_interval_ms=5000,
        )
        self.peer.ask(request, 1, answer, after_ms=after_ms)

    def join(self, epoch: int = 3) -> None:
        self.beat(0, epoch, full=True)


def joined(*, full: bool = True, member: str = "m", epoch: int = 0) -> Story:
    def story(trace: Trace) -> None:
        Member(trace).beat(epoch, 3, full=full, member=member)

    return story


def then_beats(epoch: int = 3, *, names: list[str] | None = None, after_ms: float = 5000, error: int = 0) -> Story:
    """Returns a story in which a member joins, receives epoch 3, and sends this heartbeat. If `error` is given, the
    member first sends a heartbeat that receives this error."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        if error:
            member.beat(3, error=error)
        member.beat(epoch, 3, names=names, full=epoch == 0, after_ms=after_ms)

    return story


def leaves(then: int | None = None) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        member.beat(-1)
        if then is not None:
            member.beat(then)

    return story


def leaves_and_commits(epoch: int) -> Story:
    """Returns a story with a commit after the member has left. If its application is too slow, the Java client 4.3.1
    commits with epoch -1, as if it were not a member."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        member.beat(-1)
        commit(member.peer, epoch, error=25, version=10)

    return story


def left_before_an_answer(then: int) -> Story:
    """Returns a story in which a heartbeat is answered only after the member has sent its leave request. Then the
    member sends another heartbeat."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        late = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
        exchange = member.peer.send(late, 1, after_ms=5000)
        leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
        left = member.peer.send(leaving, 1)
        answer = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=4, heartbeat_interval_ms=5000)
        member.peer.reply(exchange, late, 1, answer)
        member.peer.reply(left, leaving, 1, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=-1))
        member.beat(then, 5, full=then == 0)

    return story


def fatal(goes_on: bool) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.beat(0, full=True, error=112)
        if goes_on:
            member.beat(0, full=True)

    return story


def commits_at(epoch: int, *, stale: bool = False) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        if stale:
            commit(member.peer, 3, error=113, version=9)
            member.beat(3, 4)
        commit(member.peer, epoch, version=9)

    return story


def asks_for_its_epoch(is_refused: bool) -> Story:
    """Returns a story in which a heartbeat that reports no changes follows soon after a commit. librdkafka 2.16 sends
    such a heartbeat after STALE_MEMBER_EPOCH."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        commit(member.peer, 3, error=113 if is_refused else 0, version=9)
        member.beat(3, 4, after_ms=100)

    return story


def cooperates(
    claims: Mapping[str, tuple[int, tuple[int, ...]]], given: Mapping[str, tuple[int, ...]], then: tuple[int, ...] = ()
) -> Story:
    """Returns a story of cooperative rebalancing.

    claims  the generation and the partitions that each member claims
    given   the partitions that the leader `m` assigns to each member
    then    the partitions that the leader claims when it joins again
    """

    def metadata(generation: int, *partitions: int) -> bytes:
        owned = frozenset(TopicPartition("t", each) for each in partitions)
        return subscription_bytes(MemberSubscription(frozenset({"t"}), owned, generation))

    def joins(peer: Peer, owned: bytes) -> None:
        members = [
            JoinGroupResponseMember(member_id=name, metadata=metadata(generation, *partitions))
            for name, (generation, partitions) in claims.items()
        ]
        protocol = JoinGroupRequestProtocol(name="cooperative-sticky", metadata=owned)
        request = JoinGroupRequest(group_id="g", member_id="m", protocol_type="consumer", protocols=[protocol])
        answer = JoinGroupResponse(
            generation_id=5, protocol_name="cooperative-sticky", leader="m", member_id="m", members=members
        )
        peer.ask(request, 9, answer)

    def story(trace: Trace) -> None:
        peer = trace.connect()
        joins(peer, metadata(-1))
        shared = {name: assignment_bytes(TopicPartition("t", each) for each in some) for name, some in given.items()}
        request = SyncGroupRequest(
            group_id="g",
            generation_id=5,
            member_id="m",
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[SyncGroupRequestAssignment(member_id=name, assignment=some) for name, some in shared.items()],
        )
        peer.ask(request, 5, SyncGroupResponse(assignment=shared.get("m", b"")))
        if then:
            joins(peer, metadata(5, *then))

    return story


FRESH_AND_STALE: Final = {"m": (4, (0, 1)), "n": (3, (1,))}

CASES = (
    Case("GRP.8", cooperates({}, {"m": (0, 1)}, (0, 1)), cooperates({}, {"m": (0,)}, (0, 1))),
    Case("GRP.8", cooperates({}, {"m": (0, 1)}, (1,)), cooperates({}, {}, (1,))),
    Case("GRP.9", cooperates(FRESH_AND_STALE, {"m": (0, 1)}), cooperates(FRESH_AND_STALE, {"m": (0,), "n": (1,)})),
    Case("GRP.9", cooperates(FRESH_AND_STALE, {"m": (0,)}), cooperates(FRESH_AND_STALE, {"n": (1,)})),
    Case("GRP.1", given_an_id("m"), given_an_id("")),
    Case("GRP.1", given_an_id_at_once(""), given_an_id("")),
    Case("GRP.2", heartbeats_every(3000), heartbeats_every(12_000)),
    Case("GRP.4", rebalance("m"), rebalance("")),
    Case("GRP.4", rebalance("m"), never_joins_again),
    Case("GRP.5", rejected(25, ""), rejected(25, "m")),
    Case("GRP.20", rejected(22, "m"), rejected(22, "")),
    Case("GRP.6", fenced(False), fenced(True)),
    Case("GRP.10", commits(1), commits(1, 0)),
    Case("GRP.11", commits_in_a_rebalance(3), commits_in_a_rebalance(20)),
    Case("GRP.14", syncs_at_once(False), syncs_at_once(True)),
    Case("GRP.15", reason_of(255), reason_of(256)),
    Case("GRP.17", rebalance("m"), looks_again),
    Case("GRP.19", heartbeats_every(1000), beats_without_joining),
    Case("848.1", joined(), joined(full=False)),
    Case("848.1", joined(), joined(epoch=-7)),
    Case("848.2", joined(), joined(member="")),
    Case("848.3", then_beats(), then_beats(names=["t"])),
    Case("848.4", then_beats(), then_beats(after_ms=500)),
    Case("848.4", then_beats(), asks_for_its_epoch(is_refused=False)),
    Case("848.5", then_beats(0, error=110), then_beats(3, error=110)),
    Case("848.7", then_beats(3), then_beats(2)),
    Case("848.7", commits_at(3), commits_at(2)),
    Case("848.8", commits_at(4, stale=True), commits_at(3, stale=True)),
    Case("848.9", leaves(), leaves(3)),
    Case("848.9", leaves_and_commits(-1), leaves_and_commits(3)),
    Case("848.10", fatal(False), fatal(True)),
    Case("848.11", left_before_an_answer(0), left_before_an_answer(4)),
    Case("848.13", commits_at(3), commits_at(-1)),
)
