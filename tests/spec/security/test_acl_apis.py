"""Tests DescribeAcls, CreateAcls and DeleteAcls (API keys 29 to 31), authorized operations in responses, and the audit
log.

Source: docs/spec/security.md#s3-2, #s3-3, #s5-1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.broker.security.authorization import AUDIT_LOGGER
from odradek.protocol.messages import message_class
from odradek.protocol.schema import snake_case
from tests.support.in_process_broker import ConnectionClosed, InProcessBroker
from tests.support.json_messages import json_of, message_of

ADMIN, ALICE = "User:admin", "User:alice"
TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, ALTER, DESCRIBE, ALTER_CONFIGS = 2, 3, 4, 7, 8, 11
DENY, ALLOW = 2, 3
NOT_ASKED_FOR = -(2**31)
INVALID_REQUEST, CLUSTER_DENIED, SECURITY_DISABLED = 42, 31, 54
Json = dict[str, Any]


class Asking:
    """A broker with ACLs, and requests sent by an administrator or Alice."""

    def __init__(self, client: InProcessBroker) -> None:
        self.client = client
        self._admin = client.connection(ADMIN)
        self._alice = client.connection(ALICE)

    def ask(self, api: str, version: int, by: ConnectionInfo | None = None, **fields: Any) -> Json:
        request = message_of(message_class(f"{snake_case(api)}_request"), fields)
        return json_of(self.client.ask(by or self._admin, request, version), version)

    def as_alice(self, api: str, version: int, **fields: Any) -> Json:
        return self.ask(api, version, self._alice, **fields)

    def create(self, *acls: Json) -> list[int]:
        return [each["errorCode"] for each in self.ask("CreateAcls", 3, creations=list(acls))["results"]]

    def described(self, **fields: Any) -> set[tuple[Any, ...]]:
        found = self.ask("DescribeAcls", 3, **filter_of(**fields))
        assert found["errorCode"] == 0
        return {
            (each["resourceType"], each["resourceName"], each["patternType"], one["principal"], one["operation"])
            for each in found["resources"]
            for one in each["acls"]
        }

    def deleted(self, *filters: Json) -> list[list[str]]:
        """Deletes ACLs. For each filter, returns the resource names of the ACLs that it deleted."""
        results = self.ask("DeleteAcls", 3, filters=list(filters))["filterResults"]
        assert {each["errorCode"] for each in results} <= {0}
        return [sorted(acl["resourceName"] for acl in each["matchingAcls"]) for each in results]


def acl(name: str = "t", **fields: Any) -> Json:
    usual = {
        "resourceType": TOPIC,
        "resourceName": name,
        "resourcePatternType": LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": READ,
        "permissionType": ALLOW,
    }
    return usual | fields


def filter_of(**fields: Any) -> Json:
    return {
        "resourceTypeFilter": ANY,
        "resourceNameFilter": None,
        "patternTypeFilter": ANY,
        "principalFilter": None,
        "hostFilter": None,
        "operation": ANY,
        "permissionType": ANY,
        **fields,
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"{ADMIN};User:root",
        "offsets.topic.num.partitions": "1",
    }
    with InProcessBroker(tmp_path_factory.mktemp("acls"), settings) as client:
        begin_groups(Asking(client))
        yield client


def begin_groups(asking: Asking) -> None:
    for _ in range(5_000):  # Creating the coordinator's topic takes a few fsyncs.
        asking.ask("FindCoordinator", 4, keyType=0, coordinatorKeys=["g"])
        (group,) = asking.ask("DescribeGroups", 5, groups=["g"])["groups"]
        if group["errorCode"] == 0:
            return
        asking.client.go_on()
    raise AssertionError(group)


@pytest.fixture
def asking(broker: InProcessBroker) -> Asking:
    asking = Asking(broker)
    asking.deleted(filter_of())
    return asking


def test_scenario_117_the_same_acl_is_recorded_once(asking: Asking) -> None:
    assert asking.create(acl(), acl()) == [0, 0]
    assert asking.create(acl()) == [0]
    assert len(asking.client.broker.metadata.image.acls) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        acl(""),
        acl("cluster", resourceType=CLUSTER),
        acl("*", resourceType=CLUSTER),
    ],
)
def test_scenario_118_an_invalid_resource_name_is_refused(asking: Asking, wrong: Json) -> None:
    assert asking.create(wrong, acl("good")) == [INVALID_REQUEST, 0]
    assert asking.described() == {(TOPIC, "good", LITERAL, ALICE, READ)}


@pytest.mark.parametrize("field", ["resourceType", "resourcePatternType", "operation", "permissionType"])
def test_scenario_119_an_unset_number_cannot_be_read(asking: Asking, field: str) -> None:
    with pytest.raises(ConnectionClosed):
        asking.create(acl() | {field: 0})


@pytest.mark.parametrize(
    "beyond", [{"resourceType": 9}, {"resourcePatternType": 7}, {"operation": 99}, {"permissionType": 9}]
)
def test_scenario_120_a_number_beyond_the_last_is_refused(asking: Asking, beyond: Json) -> None:
    assert asking.create(acl() | beyond) == [INVALID_REQUEST]


@pytest.mark.parametrize(
    "of_filters",
    [
        {"resourceType": ANY},
        {"resourcePatternType": ANY},
        {"resourcePatternType": MATCH},
        {"operation": ANY},
        {"permissionType": ANY},
    ],
)
def test_scenario_121_values_that_only_filters_may_have_are_refused(asking: Asking, of_filters: Json) -> None:
    assert asking.create(acl() | of_filters) == [INVALID_REQUEST]


def test_scenario_122_a_principal_has_a_colon(asking: Asking) -> None:
    assert asking.create(acl(principal="alice"), acl(principal="")) == [INVALID_REQUEST, INVALID_REQUEST]
    assert asking.create(acl(principal="Robot:"), acl(principal=":x")) == [0, 0]


def test_scenario_123_other_parts_of_an_acl_are_not_validated(asking: Asking) -> None:
    strange = [
        acl(operation=15),
        acl(host="nowhere"),
        acl("bad/name"),
        acl("x" * 300),
        acl("kafka-cluster", resourceType=CLUSTER, resourcePatternType=PREFIXED),
    ]
    assert asking.create(*strange) == [0] * len(strange)


def test_scenario_124_filters_match_exactly_or_all_that_applies(asking: Asking) -> None:
    asking.create(
        acl("tab"),
        acl("ta", resourcePatternType=PREFIXED),
        acl("*", operation=ALL),
        acl("tab", resourceType=GROUP, principal="User:bob"),
    )

    def names(**fields: Any) -> set[str]:
        return {f"{kind}:{name}:{pattern}" for kind, name, pattern, _, _ in asking.described(**fields)}

    assert names() == {"2:tab:3", "2:ta:4", "2:*:3", "3:tab:3"}
    assert names(resourceTypeFilter=TOPIC, resourceNameFilter="tab", patternTypeFilter=LITERAL) == {"2:tab:3"}
    assert names(resourceTypeFilter=TOPIC, resourceNameFilter="tab", patternTypeFilter=ANY) == {"2:tab:3"}
    applying = names(resourceTypeFilter=TOPIC, resourceNameFilter="tab", patternTypeFilter=MATCH)
    assert applying == {"2:tab:3", "2:ta:4", "2:*:3"}
    assert names(patternTypeFilter=PREFIXED) == {"2:ta:4"}
    assert names(operation=ALL) == {"2:*:3"}
    assert names(principalFilter="User:bob") == {"3:tab:3"}
    assert names(hostFilter="127.0.0.1") == set()
    assert names(permissionType=DENY) == set()


@pytest.mark.parametrize("field", ["resourceTypeFilter", "patternTypeFilter", "operation", "permissionType"])
def test_scenario_125_filters_with_numbers_that_mean_nothing(asking: Asking, field: str) -> None:
    asking.create(acl())
    with pytest.raises(ConnectionClosed):
        asking.described(**{field: 0})
    assert asking.described(**{field: 99}) == set()


def test_scenario_125_empty_texts_match_nothing(asking: Asking) -> None:
    asking.create(acl())
    assert asking.described(resourceNameFilter="") == asking.described(principalFilter="") == set()
    assert asking.described(hostFilter="") == set()


def test_scenario_126_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, {}) as client:
        asking = Asking(client)
        assert asking.ask("DescribeAcls", 3, **filter_of())["errorCode"] == SECURITY_DISABLED
        assert asking.create(acl(), acl()) == [SECURITY_DISABLED] * 2
        (result,) = asking.ask("DeleteAcls", 3, filters=[filter_of()])["filterResults"]
        assert result["errorCode"] == SECURITY_DISABLED


def test_scenario_127_each_filter_reports_the_acls_that_it_removed(asking: Asking) -> None:
    asking.create(acl("a"), acl("b"), acl("c", resourceType=GROUP))
    both, one, none = (
        filter_of(resourceTypeFilter=TOPIC),
        filter_of(resourceNameFilter="a"),
        filter_of(principalFilter="User:bob"),
    )
    assert asking.deleted(both, one, none) == [["a", "b"], ["a"], []]
    assert asking.described() == {(GROUP, "c", LITERAL, ALICE, READ)}
    with pytest.raises(ConnectionClosed):
        asking.deleted(filter_of(operation=0))


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ADMIN}
    with InProcessBroker(tmp_path, settings) as client:
        asking = Asking(client)
        asking.create(acl("kept", host="::1"), acl("gone", permissionType=DENY))
        asking.deleted(filter_of(resourceNameFilter="gone"))
        before = dict(client.broker.metadata.image.acls.items())
    with InProcessBroker(tmp_path, settings) as client:
        assert dict(client.broker.metadata.image.acls.items()) == before
        assert len(before) == 1


def test_a_request_with_too_many_acls_changes_nothing(asking: Asking) -> None:
    policy_violation = 44
    assert set(asking.create(*(acl(f"t{number}") for number in range(10_001)))) == {policy_violation}
    assert asking.described() == set()


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


def test_scenario_128_cluster_bits_need_describe(asking: Asking) -> None:
    def of_cluster() -> tuple[int, int]:
        described = asking.as_alice("DescribeCluster", 2, includeClusterAuthorizedOperations=True)
        response = asking.as_alice("Metadata", 10, topics=[], includeClusterAuthorizedOperations=True)
        assert described["errorCode"] == 0
        return described["clusterAuthorizedOperations"], response["clusterAuthorizedOperations"]

    assert of_cluster() == (0, 0)
    asking.create(acl("kafka-cluster", resourceType=CLUSTER, operation=ALTER_CONFIGS))
    assert of_cluster() == (0, 0)
    asking.create(acl("kafka-cluster", resourceType=CLUSTER, operation=DESCRIBE))
    expected = bits(DESCRIBE, ALTER_CONFIGS, 10)
    assert of_cluster() == (expected, expected)
    asking.create(acl("kafka-cluster", resourceType=CLUSTER, operation=ALL))
    assert of_cluster() == (8096, 8096)


@pytest.mark.parametrize(("operation", "shown"), [(READ, 264), (WRITE, 272), (ALTER, 384), (ALL, 3576)])
def test_scenario_129_topic_bits_include_implied_operations(asking: Asking, operation: int, shown: int) -> None:
    asking.ask("CreateTopics", 7, topics=[{"name": "t", "numPartitions": 1, "replicationFactor": 1}])
    asking.create(acl(operation=operation), acl("missing", operation=operation))
    (topic,) = asking.as_alice("Metadata", 13, topics=[{"name": "t"}], includeTopicAuthorizedOperations=True)["topics"]
    assert topic["topicAuthorizedOperations"] == shown
    (topic,) = asking.as_alice("Metadata", 13, topics=[{"name": "t"}])["topics"]
    assert topic["topicAuthorizedOperations"] == NOT_ASKED_FOR
    found = asking.as_alice("DescribeTopicPartitions", 0, topics=[{"name": "t"}, {"name": "missing"}])["topics"]
    assert [each["topicAuthorizedOperations"] for each in found] == [shown, shown]


def test_scenario_130_group_bits(asking: Asking) -> None:
    asking.create(acl("g", resourceType=GROUP, operation=READ))
    found = asking.as_alice("DescribeGroups", 5, groups=["g", "other"], includeAuthorizedOperations=True)["groups"]
    assert [each["authorizedOperations"] for each in found] == [264, NOT_ASKED_FOR]
    asking.create(acl("g", resourceType=GROUP, operation=ALL))
    found = asking.as_alice("DescribeGroups", 5, groups=["g"], includeAuthorizedOperations=True)["groups"]
    assert [each["authorizedOperations"] for each in found] == [3400]


def test_scenario_131_without_an_authorizer_all_bits_are_set(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, {}) as client:
        found = Asking(client).as_alice("DescribeCluster", 2, includeClusterAuthorizedOperations=True)
        assert found["clusterAuthorizedOperations"] == 8096


def test_scenario_150_refusals_are_logged_with_principal_operation_and_resource(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        asking.as_alice("DescribeGroups", 5, groups=["g"])
        asking.as_alice("Metadata", 12, topics=None)
    (line,) = caplog.messages
    assert line == (
        "Principal = User:alice is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = Group:LITERAL:g"
        " for request = DescribeGroups with resourceRefCount = 1 based on rule DefaultDeny"
    )


def test_scenario_150_allowed_operations_are_logged_at_debug(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    asking.create(acl("g", resourceType=GROUP, operation=DESCRIBE))
    with caplog.at_level(logging.DEBUG, AUDIT_LOGGER):
        asking.as_alice("DescribeGroups", 5, groups=["g"])
        asking.ask("DescribeGroups", 5, groups=["g"])
    assert {each.levelname for each in caplog.records} == {"DEBUG"}
    by_acl, by_super_user = (line.partition("based on ")[2] for line in caplog.messages)
    assert by_super_user == "rule SuperUser"
    assert by_acl == (
        "rule MatchingAcl(acl=StandardAcl[resourceType=GROUP, resourceName=g, patternType=LITERAL,"
        " principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW])"
    )


def test_a_name_from_a_client_cannot_begin_a_line_of_the_audit_log(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        asking.as_alice("DescribeGroups", 5, groups=["g\nPrincipal = User:root is Allowed"])
    (line,) = caplog.messages
    assert "\n" not in line
    assert "g\\nPrincipal" in line


def test_scenario_151_the_level_changes_while_the_broker_runs(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    def set_level(name: str, level: str | None) -> None:
        change = {"name": name, "configOperation": 0 if level else 1, "value": level}
        resource = {"resourceType": 8, "resourceName": "1", "configs": [change]}
        (result,) = asking.ask("IncrementalAlterConfigs", 1, resources=[resource])["responses"]
        assert result["errorCode"] == 0, result

    for name in ("kafka.authorizer.logger", AUDIT_LOGGER):
        set_level(name, "DEBUG")
        caplog.clear()
        asking.ask("DescribeGroups", 5, groups=["g"])
        assert [each.levelname for each in caplog.records if each.name == AUDIT_LOGGER] == ["DEBUG"]
        set_level(name, None)
        caplog.clear()
        asking.ask("DescribeGroups", 5, groups=["g"])
        assert [each for each in caplog.records if each.name == AUDIT_LOGGER] == []


def test_scenario_152_a_refusal_of_the_cluster_is_one_line(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = asking.as_alice("DescribeAcls", 3, **filter_of())
    assert (found["errorCode"], found["errorMessage"]) == (CLUSTER_DENIED, "Cluster authorization failed.")
    assert len(caplog.records) == 1


def test_a_permission_ends_with_its_acl(asking: Asking) -> None:
    asking.create(acl("g", resourceType=GROUP, operation=DESCRIBE))

    def code() -> int:
        (group,) = asking.as_alice("DescribeGroups", 5, groups=["g"])["groups"]
        found: int = group["errorCode"]
        return found

    assert code() == 0
    asking.deleted(filter_of())
    assert code() == 30
