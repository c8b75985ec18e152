"""Tests that `odradek acls` turns its arguments into ACLs."""

from __future__ import annotations

import argparse

import pytest

from odradek.client.administration.users import Acl
from odradek.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.tools.commands.acls import acls_of, configure

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE, BOB = "User:alice", "User:bob"


def acls(words: str) -> list[Acl]:
    parser = argparse.ArgumentParser()
    configure(parser)
    return acls_of(parser.parse_args(["add", *words.split()]))


def test_the_options_make_an_acl_for_each_principal_resource_and_operation() -> None:
    assert acls(
        "--allow-principal User:alice --allow-principal User:bob --operation Read -t orders --group billing"
    ) == [
        Acl(TOPIC, "orders", ALICE, Operation.READ),
        Acl(TOPIC, "orders", BOB, Operation.READ),
        Acl(GROUP, "billing", ALICE, Operation.READ),
        Acl(GROUP, "billing", BOB, Operation.READ),
    ]


def test_omitted_options_mean_every_operation_and_every_host() -> None:
    assert acls("--deny-principal User:bob --topic orders") == [
        Acl(TOPIC, "orders", BOB, Operation.ALL, Permission.DENY, PatternType.LITERAL, "*")
    ]


def test_hosts_prefixes_and_operations_of_two_words_are_as_in_kafka_acls() -> None:
    words = "--allow-principal User:alice --allow-host 10.0.0.7 --operation AlterConfigs -t team-"
    assert acls(f"{words} --resource-pattern-type prefixed") == [
        Acl(
            TOPIC,
            "team-",
            ALICE,
            Operation.ALTER_CONFIGS,
            Permission.ALLOW,
            PatternType.PREFIXED,
            "10.0.0.7",
        )
    ]
    assert acls(words.replace("AlterConfigs", "ALTER_CONFIGS"))[0].operation is Operation.ALTER_CONFIGS


def test_a_producer_and_a_consumer_get_what_they_need() -> None:
    produce = acls("--allow-principal User:alice --producer --idempotent --topic orders --transactional-id shop")
    assert [(each.resource_type, each.operation) for each in produce] == [
        (TOPIC, Operation.WRITE),
        (TOPIC, Operation.DESCRIBE),
        (TOPIC, Operation.CREATE),
        (ResourceType.TRANSACTIONAL_ID, Operation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
        (CLUSTER, Operation.IDEMPOTENT_WRITE),
    ]
    both = acls("--allow-principal User:alice --producer --consumer --topic orders --group billing")
    assert [(each.resource, each.operation) for each in both] == [
        ("orders", Operation.WRITE),
        ("orders", Operation.DESCRIBE),
        ("orders", Operation.CREATE),
        ("orders", Operation.READ),
        ("billing", Operation.READ),
    ]


def test_the_cluster_has_a_name_and_no_prefix() -> None:
    words = "--allow-principal User:alice --operation Create --cluster --resource-pattern-type prefixed"
    assert acls(words) == [Acl(CLUSTER, CLUSTER_NAME, ALICE, Operation.CREATE)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--topic orders", "no principal is given: add --allow-principal"),
        ("--allow-principal alice --topic orders", "'alice' is not a principal"),
        ("--allow-principal User:alice", "no resource is given"),
        ("--allow-principal User:alice --producer --operation Read -t orders", "leave out --operation"),
        ("--allow-principal User:alice --producer --group billing", "no resource is given"),
    ],
)
def test_missing_and_contradictory_options_are_refused_before_any_request(words: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        acls(words)


@pytest.mark.parametrize("operation", ["Reed", "Any", "Unknown"])
def test_an_unknown_operation_is_refused(operation: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        acls(f"--allow-principal User:alice --operation {operation} --topic orders")
    assert f"{operation!r} is not an operation" in capsys.readouterr().err


def test_the_help_and_the_refusal_name_every_operation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        acls("--help")
    output = "".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        acls("--allow-principal User:alice --operation Raed -t orders")
    refused = capsys.readouterr().err
    for name in ("Read", "DescribeConfigs", "IdempotentWrite", "CreateTokens", "TwoPhaseCommit", "All"):
        assert name in output
        assert name in refused
    assert "Unknown" not in output
    assert acls("--allow-principal User:alice --operation TwoPhaseCommit --transactional-id shop") == [
        Acl(ResourceType.TRANSACTIONAL_ID, "shop", ALICE, Operation.TWO_PHASE_COMMIT)
    ]
