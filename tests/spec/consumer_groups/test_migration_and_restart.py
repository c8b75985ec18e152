"""Tests groups that change their protocol, and groups loaded from the log (docs/spec/consumer-groups.md#s15-6)."""

import pytest

from odradek.broker.groups.common.outcome import ConsumerConfig, GroupConfig, MigrationPolicy
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult, Owned, embedded, refused
from tests.support.group_scene import GROUP

E, P = ErrorCode, MigrationPolicy
OK = E.NONE.value
ALL: Owned = {"T6": "012345"}


def scene_with(policy: MigrationPolicy = P.BIDIRECTIONAL, *, interval_ms: int = 0) -> ConsumerScene:
    consumer = ConsumerConfig(migration_policy=policy)
    config = GroupConfig(group_initial_rebalance_delay_ms=0, consumer=consumer)
    return ConsumerScene(config=config, interval_ms=interval_ms)


def join(
    scene: ConsumerScene, member: str = "", owned: Owned | None = None, topic: str = "T6", **how: object
) -> JoinGroupResponse:
    """Sends JoinGroup for a member that uses the classic protocol. A new member joins a second time, with the member id
    that the coordinator assigned to it."""
    protocols = {"range": embedded(topic, owned=owned)}
    reply = scene.join(member, version=9, protocols=protocols, **how)  # type: ignore[arg-type]
    if not member and not reply.is_parked and reply.code is E.MEMBER_ID_REQUIRED:
        reply = scene.join(reply.answer.member_id, version=9, protocols=protocols, **how)  # type: ignore[arg-type]
    scene.advance(0)
    return reply.answer


def assigned(scene: ConsumerScene, member: str, generation: int) -> str | ErrorCode:
    """Returns the member's assignment from the SyncGroup response, or the response's error code."""
    answer = scene.sync(member, generation, protocol_type="consumer", protocol_name="range").answer
    if answer.error_code:
        return ErrorCode(answer.error_code)
    read = decode(ConsumerProtocolAssignment, 3, answer.assignment, 2)
    return ", ".join(f"{each.topic} {''.join(map(str, each.partitions))}" for each in read.assigned_partitions)


def classic_group(scene: ConsumerScene, *, user_data: bytes | None = None) -> str:
    """Creates a classic group with one member, which owns all of T6 at generation 1. Returns the member id.

    user_data  the user data in the member's assignment
    """
    from odradek.protocol.codec import encode
    from odradek.protocol.messages.consumer_protocol_assignment import TopicPartition

    joined = join(scene)
    everything = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="T6", partitions=[0, 1, 2, 3, 4, 5])], user_data=user_data
    )
    part = (3).to_bytes(2, "big") + encode(everything, 3)
    scene.sync(joined.member_id, joined.generation_id, {joined.member_id: part})
    return joined.member_id


def group_type(scene: ConsumerScene) -> str:
    (listed,) = scene.core.list_groups([], [])
    return listed.group_type


def test_scenario_081_a_group_of_offsets_only_becomes_a_consumer_group_and_keeps_them() -> None:
    scene = scene_with(P.DISABLED)
    scene.commit(7, topic="T6")
    assert scene.member("X", "T6") == HeartbeatResult(OK, 2, "T6 012345")
    for _ in ("now", "after kill -9"):
        assert (group_type(scene), scene.groups()) == ("consumer", {GROUP: "Stable"})
        assert scene.fetch_all() == {("T6", 0): 7}
        scene.restart()


def test_scenario_082_an_empty_consumer_group_becomes_a_classic_group() -> None:
    scene = scene_with(P.DISABLED)
    scene.member("A", "T6")
    scene.beat("A", -1)
    joined = join(scene)
    assert (joined.generation_id, joined.leader) == (1, joined.member_id)
    assert group_type(scene) == "classic"


def upgraded() -> tuple[ConsumerScene, str]:
    """Sets up scenario 83. Member c owned everything in a classic group, and then X joined the group with the consumer
    protocol. Returns the scene and c's id."""
    scene = scene_with()
    c = classic_group(scene)
    assert scene.member("X", "T6") == HeartbeatResult(OK, 2, "")
    return scene, c


def test_scenario_083_a_classic_group_with_members_is_upgraded() -> None:
    scene, c = upgraded()
    described = scene.member_of(c)
    assert (described.member_epoch, described.member_type) == (1, 0)
    assert scene.member_of("X").member_type == 1
    assert sorted([scene.target(c), scene.target("X")]) == ["T6 012", "T6 345"]
    assert scene.keys_written()[-10:] == [-2, 5, 3, 7, 6, 8, 5, 3, 7, 7, 6, 8][-10:]


def test_scenario_084_the_classic_member_gives_up_step_by_step() -> None:
    scene, c = upgraded()
    kept = scene.target(c).split()[1]
    assert scene.heartbeat(c, 1) is E.REBALANCE_IN_PROGRESS
    assert join(scene, c, ALL).generation_id == 1
    assert assigned(scene, c, 1) == f"T6 {kept}"
    assert scene.heartbeat(c, 1) is E.REBALANCE_IN_PROGRESS
    assert join(scene, c, {"T6": kept}).generation_id == 2
    assert scene.beat("X").assignment == scene.target("X")
    assert scene.heartbeat(c, 2) is E.NONE


def test_scenario_085_a_group_that_waits_for_its_assignment_is_upgraded_too() -> None:
    scene = scene_with()
    c = join(scene).member_id
    assert scene.member("X", "T6").epoch == 2
    assert assigned(scene, c, 1) is E.REBALANCE_IN_PROGRESS


def test_scenario_086_a_classic_member_joins_a_consumer_group() -> None:
    scene = scene_with()
    scene.member("X", "T6")
    reply = scene.join(version=9, protocols={"range": embedded("T6")})
    assert reply.code is E.MEMBER_ID_REQUIRED
    c = reply.answer.member_id
    joined = join(scene, c)
    assert (joined.generation_id, joined.leader, joined.members) == (3, "", [])
    assert assigned(scene, c, 3) == ""
    assert scene.heartbeat(c, 3) is E.NONE
    scene.beat("X")
    scene.beat("X", owned={"T6": scene.target("X").split()[1]})
    assert scene.heartbeat(c, 3) is E.REBALANCE_IN_PROGRESS
    assert join(scene, c).generation_id == 3
    assert assigned(scene, c, 3) == scene.target(c)


@pytest.mark.parametrize("names", [("myassignor",), ("sticky", "range")])
def test_scenario_087_assignors_of_clients_are_taken_as_they_are(names: tuple[str, ...]) -> None:
    scene = scene_with()
    reply = scene.join(version=3, protocols={name: embedded("T6") for name in names})
    scene.advance(0)
    c = reply.answer.member_id
    assert scene.member("X", "T6").code == OK
    assert {c, "X"} == set(scene.group_of().members)


def test_scenario_088_a_group_that_is_not_of_consumers_is_not_upgraded() -> None:
    for how in ({"protocol_type": "connect"}, {"protocols": {"range": b"x"}}):
        scene = scene_with()
        scene.join(version=3, **({"protocols": {"range": embedded("T6")}} | how))
        scene.advance(0)
        assert scene.member("X", "T6") == refused(E.GROUP_ID_NOT_FOUND)
        assert group_type(scene) == "classic"


@pytest.mark.parametrize(("user_data", "is_upgraded"), [(None, True), (b"", True), (b"x", False)])
def test_a_group_whose_assignor_keeps_data_in_assignments_is_not_upgraded(user_data: bytes, is_upgraded: bool) -> None:
    scene = scene_with()
    c = classic_group(scene, user_data=user_data)
    if is_upgraded:
        assert scene.member("X", "T6").code == OK
        return
    assert scene.member("X", "T6") == refused(E.GROUP_ID_NOT_FOUND)
    assert "custom assignor" in (scene.last_error or "")
    assert (group_type(scene), scene.heartbeat(c, 1)) == ("classic", E.NONE)


def test_a_classic_member_rejoins_only_after_the_assignment_interval() -> None:
    scene = scene_with(interval_ms=1_000)
    assert scene.member("X", "T6").epoch == 2
    c = join(scene).member_id
    assert (scene.state[1], assigned(scene, c, 2), scene.heartbeat(c, 2)) == (3, "", E.NONE)
    scene.advance(999)
    assert scene.heartbeat(c, 2) is E.NONE
    scene.advance(1)
    assert scene.heartbeat(c, 2) is E.REBALANCE_IN_PROGRESS
    assert join(scene, c).generation_id == 3
    assert scene.heartbeat(c, 3) is E.NONE


def test_a_classic_member_rejoins_for_a_target_that_another_member_triggered() -> None:
    scene = scene_with(interval_ms=1_000)
    scene.member("X", "T6")
    c = join(scene).member_id
    scene.advance(1_000)
    scene.beat("X")
    assert assigned(scene, c, 2) is E.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(c, 2) is E.REBALANCE_IN_PROGRESS


def test_a_refused_join_of_a_consumer_group_is_answered_without_a_member_id() -> None:
    scene = scene_with()
    scene.member("X", "T6")
    c = join(scene).member_id
    answer = join(scene, c, protocol_type="connect")
    assert (answer.error_code, answer.member_id) == (E.INCONSISTENT_GROUP_PROTOCOL.value, "")


def test_a_member_id_with_an_instance_id_that_nobody_holds_is_unknown() -> None:
    scene = scene_with()
    scene.member("X", "T6")
    assert join(scene, "stranger", instance="free").error_code == E.UNKNOWN_MEMBER_ID.value
    assert set(scene.group_of().members) == {"X"}


@pytest.mark.parametrize("policy", [P.BIDIRECTIONAL, P.DOWNGRADE])
def test_scenario_089_with_the_last_consumer_member_the_group_becomes_classic(policy: MigrationPolicy) -> None:
    scene = scene_with(policy)
    scene.member("X", "T6")
    c = join(scene).member_id
    epoch = scene.state[1]
    scene.beat("X", -1)
    assert group_type(scene) == "classic"
    assert scene.heartbeat(c, epoch) is E.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(c, epoch - 1) is E.ILLEGAL_GENERATION
    assert join(scene, c).generation_id == epoch + 1
    assert scene.groups() == {GROUP: "CompletingRebalance"}


def test_scenario_089_after_a_restart_it_is_stable_as_recorded() -> None:
    scene = scene_with()
    scene.member("X", "T6")
    c = join(scene).member_id
    scene.beat("X", -1)
    scene.restart()
    assert scene.groups() == {GROUP: "Stable"}
    assert scene.heartbeat(c, 3) is E.NONE


def test_scenario_090_where_downgrades_are_not_allowed_it_stays_a_consumer_group() -> None:
    scene = scene_with(P.UPGRADE)
    scene.member("X", "T6")
    c = join(scene).member_id
    scene.beat("X", -1)
    assert group_type(scene) == "consumer"
    assert scene.heartbeat(c, 3) is E.REBALANCE_IN_PROGRESS
    joined = join(scene, c)
    assert joined.generation_id == scene.state[1]
    assert assigned(scene, c, joined.generation_id) == "T6 012345"


@pytest.mark.parametrize("policy", [P.DOWNGRADE, P.DISABLED])
def test_scenario_091_where_upgrades_are_not_allowed_the_group_is_left_alone(policy: MigrationPolicy) -> None:
    scene = scene_with(policy)
    c = classic_group(scene)
    assert scene.member("X", "T6") == refused(E.GROUP_ID_NOT_FOUND)
    assert "online upgrade is disabled" in (scene.last_error or "")
    assert scene.heartbeat(c, 1) is E.NONE


def test_scenario_092_where_nothing_is_allowed_no_classic_member_joins() -> None:
    scene = scene_with(P.DISABLED)
    scene.member("X", "T6")
    assert join(scene).error_code == E.INCONSISTENT_GROUP_PROTOCOL.value


def mixed_static() -> tuple[ConsumerScene, str]:
    scene = scene_with()
    scene.member("X", "T6")
    ci = join(scene, instance="ci").member_id
    return scene, ci


def test_scenario_093_a_consumer_member_takes_the_place_of_a_static_classic_one() -> None:
    scene, ci = mixed_static()
    epoch = scene.state[1]
    target = scene.target(ci)
    assert scene.member("N", "T6", instance="ci").epoch == epoch
    assert scene.target("N") == target
    assert scene.heartbeat(ci, epoch, instance="ci") is E.FENCED_INSTANCE_ID
    assert join(scene, ci, instance="ci").error_code == E.FENCED_INSTANCE_ID.value


def test_scenario_094_a_classic_member_takes_the_place_of_a_live_consumer_one() -> None:
    scene, _ = mixed_static()
    scene.member("N", "T6", instance="ci")
    assert join(scene, instance="ci").error_code == OK
    assert scene.beat("N") == refused(E.UNKNOWN_MEMBER_ID)


def last_consumer_member(scene: ConsumerScene) -> str:
    """Creates a group with two members: N, a static member that uses the consumer protocol, and a classic member.

    Each member owns its final assignment. Returns the classic member's id.
    """
    scene.member("N", "T6", instance="ni")
    scene.advance(scene.cluster.defaults["consumer.assignment.interval.ms"])
    c = join(scene).member_id
    scene.beat("N", instance="ni")
    scene.beat("N", instance="ni", owned={"T6": scene.target("N").split()[1]})
    generation = join(scene, c).generation_id
    assert assigned(scene, c, generation) == scene.target(c)
    return c


def test_a_static_classic_member_takes_the_place_of_the_last_consumer_one_and_the_others_stay() -> None:
    scene = scene_with(interval_ms=1_000)
    c = last_consumer_member(scene)
    joined = join(scene, instance="ni")
    assert (group_type(scene), scene.groups()) == ("classic", {GROUP: "Stable"})
    assert scene.heartbeat(c, joined.generation_id) is E.NONE


def test_other_members_rejoin_if_the_static_replacement_has_another_subscription() -> None:
    scene = scene_with(interval_ms=1_000)
    c = last_consumer_member(scene)
    joined = join(scene, instance="ni", topic="T3")
    assert (group_type(scene), scene.groups()) == ("classic", {GROUP: "PreparingRebalance"})
    assert scene.heartbeat(c, joined.generation_id) is E.REBALANCE_IN_PROGRESS


def test_other_members_rejoin_if_the_last_change_has_no_target_yet() -> None:
    scene = scene_with(interval_ms=1_000)
    last_consumer_member(scene)
    join(scene)
    joined = join(scene, instance="ni")
    assert joined.error_code == OK
    assert (group_type(scene), scene.groups()) == ("classic", {GROUP: "PreparingRebalance"})


def test_scenario_095_a_classic_member_has_its_own_session() -> None:
    scene = scene_with()
    scene.member("X", "T6")
    c = join(scene, session_timeout_ms=6_000).member_id
    assigned(scene, c, 3)
    scene.advance(5_999)
    assert c in scene.group_of().members
    scene.advance(1)
    assert c not in scene.group_of().members


def shown(scene: ConsumerScene) -> object:
    group = scene.described()
    members = {
        member.member_id: (
            member.member_epoch,
            member.instance_id,
            member.member_type,
            member.subscribed_topic_regex,
            scene.held(member.member_id),
            scene.target(member.member_id),
        )
        for member in group.members
    }
    return group.group_state, group.group_epoch, group.assignment_epoch, members


def test_scenario_096_a_restart_keeps_members_epochs_and_assignments() -> None:
    scene = scene_with()
    scene.member("A", "T6")
    scene.member("S", "T6", instance="is")
    scene.member("R", regex="T.*")
    scene.advance(0)
    c = join(scene).member_id
    scene.settle("A", "S", "R")
    scene.beat("S", -2, instance="is")
    scene.member("late", "T3")
    scene.beat("A")
    before = shown(scene)
    scene.restart()
    assert shown(scene) == before
    epoch = scene.epochs["A"]
    assert scene.beat("A") == HeartbeatResult(OK, epoch, None)
    assert scene.heartbeat(c, scene.group_of().members[c].epoch) in (E.NONE, E.REBALANCE_IN_PROGRESS)


def test_scenario_097_after_a_restart_the_revocation_timeout_starts_again() -> None:
    scene = scene_with()
    scene.member("A", "T6", timeout_ms=3_000)
    scene.member("C", "T6")
    scene.beat("A")
    scene.advance(2_000)
    scene.restart()
    scene.advance(2_999)
    assert "A" in scene.group_of().members
    scene.advance(1)
    assert "A" not in scene.group_of().members
