"""Tests that a group member rejoins, loses its partitions, or fails, depending on the coordinator's response."""

import pytest

from odradek.client.consuming.group_member import NO_GENERATION, NO_MEMBER, GroupRequest, GroupStep, Membership
from odradek.protocol.errors import ErrorCode


def stable() -> Membership:
    member = Membership()
    member.set_generation("m-1", 3)
    member.set_stable()
    return member


@pytest.mark.parametrize("kind", GroupRequest)
def test_success_changes_nothing(kind: GroupRequest) -> None:
    member = stable()
    assert member.handle_answer(kind, ErrorCode.NONE) is GroupStep.GO_ON
    assert member == stable()


@pytest.mark.parametrize("kind", GroupRequest)
def test_a_member_rejoins_a_rebalance_with_its_id_and_its_partitions(kind: GroupRequest) -> None:
    member = stable()
    assert member.handle_answer(kind, ErrorCode.REBALANCE_IN_PROGRESS) is GroupStep.REJOIN
    assert (member.member_id, member.is_stable, member.is_lost) == ("m-1", False, False)


@pytest.mark.parametrize("kind", GroupRequest)
def test_a_member_of_an_old_generation_loses_its_partitions(kind: GroupRequest) -> None:
    member = stable()
    assert member.handle_answer(kind, ErrorCode.ILLEGAL_GENERATION) is GroupStep.REJOIN_EXPELLED
    assert (member.member_id, member.generation_id, member.is_lost) == ("m-1", NO_GENERATION, True)


@pytest.mark.parametrize("kind", GroupRequest)
def test_an_unknown_member_joins_as_a_new_member(kind: GroupRequest) -> None:
    member = stable()
    assert member.handle_answer(kind, ErrorCode.UNKNOWN_MEMBER_ID) is GroupStep.JOIN_ANEW
    assert (member.member_id, member.generation_id, member.is_lost) == (NO_MEMBER, NO_GENERATION, True)


@pytest.mark.parametrize("kind", GroupRequest)
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_member_finds_its_coordinator_again_after_not_coordinator(kind: GroupRequest, code: ErrorCode) -> None:
    member = stable()
    assert member.handle_answer(kind, code) is GroupStep.FIND_COORDINATOR
    assert member == stable()


@pytest.mark.parametrize("kind", [GroupRequest.JOIN, GroupRequest.HEARTBEAT, GroupRequest.COMMIT])
def test_a_client_repeats_its_request_while_the_coordinator_loads(kind: GroupRequest) -> None:
    assert stable().handle_answer(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is GroupStep.REPEAT


def test_a_member_id_is_given_with_the_first_refusal_to_join() -> None:
    member = Membership()
    member.set_member_id("m-1")
    assert member.handle_answer(GroupRequest.JOIN, ErrorCode.MEMBER_ID_REQUIRED) is GroupStep.REJOIN
    assert member.member_id == "m-1"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_GROUP_ID,
    ],
)
@pytest.mark.parametrize("kind", GroupRequest)
def test_a_permanent_error_of_the_membership_goes_to_the_application(kind: GroupRequest, code: ErrorCode) -> None:
    assert stable().handle_answer(kind, code) is GroupStep.GIVE_UP


def test_a_member_that_joins_again_is_no_longer_lost() -> None:
    member = stable()
    member.forget_membership()
    assert member.is_lost
    member.set_generation("m-2", 4)
    assert not member.is_lost
    assert not member.is_stable  # SyncGroup has not been sent yet
