"""Tests individual decisions of the authorizer (docs/spec/security.md#s3-1)."""

from collections.abc import Iterable
from itertools import count
from typing import TypedDict, Unpack

import pytest

from odradek.broker.security.acl.acls import Acl, Acls
from odradek.broker.security.acl.authorizer import StandardAuthorizer
from odradek.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP, CLUSTER, TXN_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
O = Operation  # noqa: E741
ALICE, BOB, HERE = "User:alice", "User:bob", "127.0.0.1"
ON_TOPICS = (O.READ, O.WRITE, O.CREATE, O.DELETE, O.ALTER, O.DESCRIBE, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS)


class About(TypedDict, total=False):
    """The parts of an ACL for which `allow` and `deny` have defaults, except the resource name."""

    resource: ResourceType
    principal: str
    host: str
    is_prefix: bool


def allow(operation: Operation, name: str = "z-t", **about: Unpack[About]) -> Acl:
    return acl(Permission.ALLOW, operation, name, **about)


def deny(operation: Operation, name: str = "z-t", **about: Unpack[About]) -> Acl:
    return acl(Permission.DENY, operation, name, **about)


def acl(
    permission: Permission,
    operation: Operation,
    name: str,
    *,
    resource: ResourceType = TOPIC,
    principal: str = ALICE,
    host: str = "*",
    is_prefix: bool = False,
) -> Acl:
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    return Acl(resource, name, pattern, principal, host, operation, permission)


def with_acls(acls: Iterable[Acl]) -> Acls:
    image = Acls()
    for number, each in zip(count(), acls, strict=False):
        image.add(number.to_bytes(16), each)
    return image


def given(*acls: Acl, super_users: Iterable[str] = (), allows_everyone: bool = False) -> StandardAuthorizer:
    return StandardAuthorizer(with_acls(acls), frozenset(super_users), allows_everyone=allows_everyone)


def may(
    authorizer: StandardAuthorizer,
    operation: Operation,
    name: str = "z-t",
    *,
    resource: ResourceType = TOPIC,
    principal: str = ALICE,
    host: str = HERE,
) -> bool:
    return authorizer.decide(principal, host, operation, resource, name).is_allowed


def rights(authorizer: StandardAuthorizer, name: str = "z-t") -> set[Operation]:
    return {operation for operation in ON_TOPICS if may(authorizer, operation, name)}


@pytest.mark.parametrize("operation", [O.READ, O.WRITE, O.DELETE, O.ALTER])
def test_scenario_101_operations_that_imply_describe_allow_it(operation: Operation) -> None:
    assert rights(given(allow(operation))) == {operation, O.DESCRIBE}


@pytest.mark.parametrize("operation", [O.CREATE, O.DESCRIBE, O.DESCRIBE_CONFIGS])
def test_scenario_102_other_rights_of_a_topic_imply_nothing(operation: Operation) -> None:
    assert rights(given(allow(operation))) == {operation}


@pytest.mark.parametrize(
    "operation", [O.CLUSTER_ACTION, O.IDEMPOTENT_WRITE, O.CREATE_TOKENS, O.DESCRIBE_TOKENS, O.TWO_PHASE_COMMIT]
)
def test_scenario_102_rights_that_a_topic_does_not_have_allow_nothing(operation: Operation) -> None:
    assert rights(given(allow(operation))) == set()


def test_scenario_103_alter_configs_implies_describe_configs_only() -> None:
    assert rights(given(allow(O.ALTER_CONFIGS))) == {O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS}


def test_scenario_104_a_denied_read_denies_nothing_else() -> None:
    assert rights(given(allow(O.ALL), deny(O.READ))) == set(ON_TOPICS) - {O.READ}


def test_scenario_105_a_denied_describe_leaves_the_operations_that_imply_it() -> None:
    assert rights(given(allow(O.ALL), deny(O.DESCRIBE))) == set(ON_TOPICS) - {O.DESCRIBE}


@pytest.mark.parametrize(
    "denied", [deny(O.READ, "z", is_prefix=True), deny(O.READ, "*"), deny(O.READ, principal="User:*")]
)
def test_scenario_106_any_matching_deny_wins(denied: Acl) -> None:
    assert rights(given(allow(O.READ), denied)) == {O.DESCRIBE}


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (allow(O.READ, "z-t", is_prefix=True), {"z-t", "z-tail"}),
        (allow(O.READ, "*"), {"z-t", "z-tail", "z", "a"}),
        (allow(O.READ, "*", is_prefix=True), set()),
        (allow(O.READ, "z"), {"z"}),
    ],
)
def test_scenario_107_patterns_of_names(allowed: Acl, names: set[str]) -> None:
    assert {name for name in ("z-t", "z-tail", "z", "a") if may(given(allowed), O.READ, name)} == names


@pytest.mark.parametrize(
    ("host", "matches"),
    [("127.0.0.1", True), ("localhost", False), ("127.0.0.0", False), ("::1", False), ("*", True)],
)
def test_scenario_108_a_host_is_an_address_as_text(host: str, matches: bool) -> None:
    assert may(given(allow(O.READ, host=host)), O.READ) is matches


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000:0000::1"])
@pytest.mark.parametrize("peer", ["::1", "0:0:0:0:0:0:0:1"])
def test_scenario_159_both_spellings_of_ipv6_are_one_host(written: str, peer: str) -> None:
    assert may(given(allow(O.READ, host=written)), O.READ, host=peer)
    assert not may(given(allow(O.READ, host=written)), O.READ, host="::2")


@pytest.mark.parametrize("principal", ["User:Alice", "user:alice", "Group:alice", "User:alic*"])
def test_scenario_109_a_principal_is_exact_text(principal: str) -> None:
    assert rights(given(allow(O.ALL, principal=principal))) == set()


def test_scenario_110_rights_of_another_type_are_no_rights_of_the_topic() -> None:
    assert rights(given(allow(O.READ, resource=GROUP))) == set()
    assert rights(given(allow(O.ALL, CLUSTER_NAME, resource=CLUSTER))) == set()


@pytest.mark.parametrize(
    "about_the_name",
    [
        allow(O.READ, principal=BOB),
        allow(O.READ, "z", is_prefix=True, principal=BOB),
        allow(O.READ, "*", principal=BOB),
        allow(O.READ, host="10.0.0.1"),
        allow(O.CREATE),
    ],
)
def test_scenario_111_with_allow_everyone_one_acl_closes_the_resource(about_the_name: Acl) -> None:
    assert not may(given(about_the_name, allows_everyone=True), O.READ)


@pytest.mark.parametrize("elsewhere", [allow(O.READ, resource=GROUP), allow(O.READ, "other", principal=BOB)])
def test_scenario_111_acls_of_other_resources_change_nothing(elsewhere: Acl) -> None:
    assert may(given(elsewhere, allows_everyone=True), O.READ)


def test_scenario_112_the_first_acl_of_the_cluster_closes_it_to_all_but_super_users() -> None:
    closed = given(
        allow(O.ALTER, CLUSTER_NAME, resource=CLUSTER, principal=BOB), super_users=["User:root"], allows_everyone=True
    )
    assert not may(closed, O.CREATE, CLUSTER_NAME, resource=CLUSTER)
    assert not may(closed, O.CREATE, CLUSTER_NAME, resource=CLUSTER, principal=BOB)
    assert may(closed, O.CREATE, CLUSTER_NAME, resource=CLUSTER, principal="User:root")


def test_a_super_user_is_denied_nothing() -> None:
    authorizer = given(deny(O.ALL, "*", principal="User:*"), super_users=[ALICE])
    assert rights(authorizer) == set(ON_TOPICS)
    assert str(authorizer.decide(ALICE, HERE, O.READ, TOPIC, "z-t")) == "SuperUser"


WRITE_SOMEWHERE = [
    allow(O.WRITE, "any"),
    allow(O.ALL, "any"),
    allow(O.WRITE, "any", is_prefix=True),
    allow(O.WRITE, "*"),
    allow(O.WRITE, "any", principal="User:*"),
]


def may_write_anywhere(*acls: Acl) -> bool:
    return given(*acls).decide_on_any(ALICE, HERE, O.WRITE, TOPIC)


@pytest.mark.parametrize("allowed", WRITE_SOMEWHERE)
def test_scenario_113_write_on_any_topic_is_enough_to_be_idempotent(allowed: Acl) -> None:
    assert may_write_anywhere(allowed)
    assert may_write_anywhere(allowed, deny(O.IDEMPOTENT_WRITE, CLUSTER_NAME, resource=CLUSTER))


def test_scenario_113_super_users_and_everyone_are_allowed_if_no_acl_applies() -> None:
    assert given(super_users=[ALICE]).decide_on_any(ALICE, HERE, O.WRITE, TOPIC)
    assert given(allows_everyone=True).decide_on_any(ALICE, HERE, O.WRITE, TOPIC)
    assert may_write_anywhere(allow(O.WRITE, "hardcode"))


@pytest.mark.parametrize(
    "acls",
    [
        [allow(O.READ, "any")],
        [allow(O.WRITE, "any", resource=GROUP)],
        [allow(O.WRITE, "any", host="10.0.0.1")],
        [allow(O.WRITE, "any"), deny(O.WRITE, "any")],
        [allow(O.WRITE, "any"), deny(O.ALL, "any")],
        [allow(O.WRITE, "any"), deny(O.WRITE, "*")],
        [allow(O.WRITE, "any"), deny(O.WRITE, "an", is_prefix=True)],
        [allow(O.WRITE, "*"), deny(O.WRITE, "*", principal="User:*")],
    ],
)
def test_scenario_114_a_topic_that_is_denied_or_not_written_to_is_not_enough(acls: list[Acl]) -> None:
    assert not may_write_anywhere(*acls)


def test_scenario_115_a_prefix_is_denied_by_itself_and_by_shorter_ones() -> None:
    assert may_write_anywhere(allow(O.WRITE, "any", is_prefix=True), deny(O.WRITE, "any-t", is_prefix=True))
    assert not may_write_anywhere(allow(O.WRITE, "any-t", is_prefix=True), deny(O.WRITE, "any", is_prefix=True))


def test_scenario_116_two_phase_commit_is_a_separate_operation() -> None:
    def on_id(*acls: Acl) -> tuple[bool, bool]:
        authorizer = given(*acls)
        operations = (O.WRITE, O.TWO_PHASE_COMMIT)
        write, two_phase = (may(authorizer, operation, "x", resource=TXN_ID) for operation in operations)
        return write, two_phase

    every = allow(O.ALL, "x", resource=TXN_ID)
    assert on_id(allow(O.WRITE, "x", resource=TXN_ID)) == (True, False)
    assert on_id(allow(O.TWO_PHASE_COMMIT, "x", resource=TXN_ID)) == (False, True)
    assert on_id(every) == (True, True)
    assert on_id(every, deny(O.TWO_PHASE_COMMIT, "x", resource=TXN_ID)) == (True, False)


def test_a_decision_holds_until_the_acls_change() -> None:
    acls = Acls()
    authorizer = StandardAuthorizer(acls, frozenset(), allows_everyone=False)
    assert not may(authorizer, O.READ)
    acls.add(b"1" * 16, allow(O.READ))
    assert may(authorizer, O.READ)
    acls.add(b"2" * 16, deny(O.READ, "z", is_prefix=True))
    assert not may(authorizer, O.READ)
    acls.remove(b"2" * 16)
    assert may(authorizer, O.READ)
    acls.remove(b"1" * 16)
    assert not may(authorizer, O.READ)


def test_after_any_order_of_changes_decisions_are_those_of_a_new_authorizer() -> None:
    some = [
        allow(O.READ),
        allow(O.ALL, "*"),
        deny(O.READ, "z", is_prefix=True),
        allow(O.WRITE, "z-", is_prefix=True, principal="User:*"),
        deny(O.WRITE, host="10.0.0.1"),
        allow(O.ALTER_CONFIGS, "z", is_prefix=True),
    ]
    acls = Acls()
    kept = StandardAuthorizer(acls, frozenset(), allows_everyone=True)
    held: dict[bytes, Acl] = {}
    for step in range(200):
        number = (step * 7 + step // 5) % len(some)
        acl_id = number.to_bytes(16)
        if acl_id in held:
            acls.remove(acl_id)
            del held[acl_id]
        else:
            acls.add(acl_id, some[number])
            held[acl_id] = some[number]
        for name in ("z-t", "z", "a"):
            assert rights(kept, name) == rights(given(*held.values(), allows_everyone=True), name)
        assert len(acls) == len(held)


def test_a_ruling_says_which_acl_decided() -> None:
    ruling = given(allow(O.READ), deny(O.ALL, "z", is_prefix=True)).decide(ALICE, HERE, O.READ, TOPIC, "z-t")
    assert str(ruling) == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=z, patternType=PREFIXED, principal=User:alice,"
        " host=*, operation=ALL, permissionType=DENY])"
    )
    assert str(given().decide(ALICE, HERE, O.READ, TOPIC, "z-t")) == "DefaultDeny"
    assert str(given(allows_everyone=True).decide(ALICE, HERE, O.READ, TOPIC, "z-t")) == "DefaultAllow"
