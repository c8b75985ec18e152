"""Tests that Odradek stores and applies ACLs like Kafka. `kafka-acls` manages ACLs on Odradek, each broker reads ACLs
that the other has stored, and both apply address ranges in the same way.

Rules: docs/spec/security.md#s3-2.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from tests.clients.speakers import wait_for
from tests.conformance.differential.conversation import Place, Talk, Trace, differences
from tests.conformance.differential.differences import reason_for
from tests.conformance.tools import Tools
from tests.support.broker_process import EMULATED, Broker, BrokerProcess, KafkaProcess, new_broker
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
VERSION, ANY = 3, 1
OPERATIONS = re.compile(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)")
Acl = tuple[int, str, int, str, str, int, int]  # type, name, pattern, principal, host, operation, permission


def described(broker: Broker) -> set[Acl]:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    with Wire(broker.bootstrap) as wire:
        found = wire.ask(request, VERSION, DescribeAclsResponse)
    assert found.error_code == 0
    return {
        (each.resource_type, each.resource_name, each.pattern_type, *described_acl)
        for each in found.resources
        for described_acl in ((acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls)
    }


def create(broker: Broker, *acls: Acl) -> None:
    creations = [
        AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        for resource, name, pattern, principal, host, operation, permission in acls
    ]
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(CreateAclsRequest(creations=creations), VERSION, CreateAclsResponse)
    assert [result.error_code for result in answer.results] == [0] * len(acls)


def delete(broker: Broker, name: str) -> None:
    named = DeleteAclsFilter(
        resource_type_filter=ANY,
        resource_name_filter=name,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    with Wire(broker.bootstrap) as wire:
        (result,) = wire.ask(DeleteAclsRequest(filters=[named]), VERSION, DeleteAclsResponse).filter_results
    assert (result.error_code, len(result.matching_acls)) == (0, 1)


def test_acls_are_kept_over_changes_of_the_broker(tmp_path: Path) -> None:
    ours: set[Acl] = {
        (2, "orders", 3, "User:alice", "*", 4, 3),
        (2, "ord", 4, "User:*", "10.0.0.1", 3, 2),
        (4, "kafka-cluster", 3, "User:alice", "*", 2, 3),
        (5, "pay-", 4, "User:bob", "::1", 15, 3),
    }
    directory = tmp_path / "data"
    with BrokerProcess(directory, SETTINGS) as broker:
        create(broker, *ours)
        create(broker, (3, "gone", 3, "User:alice", "*", 3, 3))
        delete(broker, "gone")
        assert described(broker) == ours
    of_kafka: Acl = (7, "bob", 3, "User:carol", "*", 13, 3)
    with KafkaProcess(directory, SETTINGS) as kafka:
        wait_for("the ACLs", lambda: described(kafka) == ours)
        create(kafka, of_kafka)
        delete(kafka, "ord")
    kept = {acl for acl in ours if acl[1] != "ord"} | {of_kafka}
    with BrokerProcess(directory, SETTINGS) as broker:
        assert described(broker) == kept
        broker.kill9()
        broker.start()
        assert described(broker) == kept


def test_kafka_acls_lists_adds_and_removes(tools: Tools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        at = ("--bootstrap-server", broker.bootstrap)

        def listed(*options: str) -> set[tuple[str, ...]]:
            return set(OPERATIONS.findall(tools.run("acls", *at, "--list", *options).stdout))

        def allowed(*operations: str, principal: str = "User:alice") -> set[tuple[str, ...]]:
            return {(principal, "*", operation, "ALLOW") for operation in operations}

        who = ("--allow-principal", "User:alice")
        tools.run(
            "acls", *at, "--add", *who, "--producer", "--topic", "out", "--transactional-id", "tx", "--idempotent"
        )
        assert listed("--topic", "out") == allowed("WRITE", "DESCRIBE", "CREATE")
        assert listed("--transactional-id", "tx") == allowed("WRITE", "DESCRIBE")
        assert listed("--cluster") == allowed("IDEMPOTENT_WRITE")
        prefixed = ("--resource-pattern-type", "prefixed")
        tools.run("acls", *at, "--add", *who, "--consumer", "--topic", "in", "--group", "g", *prefixed)
        assert listed("--group", "g-1", "--resource-pattern-type", "match") == allowed("READ")
        tools.run("acls", *at, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--topic", "out")
        assert ("User:bob", "10.0.0.1", "ALL", "DENY") in listed("--topic", "out")
        tools.run("acls", *at, "--remove", "--force", "--topic", "out")
        assert listed("--topic", "out") == set()
        assert listed("--principal", "User:alice") != set()


HOSTS = (
    *("10.0.0.0/8", "10.0.0.1/8", "0.0.0.0/0", "::1/128", "2001:db8::/32", "fe80::1%eth0/64"),
    *("10.0.0.0/33", "10.0.0.300/8", "10.0.0.0/", "10.0.0/24", "10.0.0.0/-1", "10.0.0.0/8 ", "a:b/64", "::1/129"),
    *("foo", "*", "10.0.0.5", ""),
)
ANONYMOUS, READ, ALLOW, DENY, TOPIC = "User:ANONYMOUS", 3, 3, 2, 2


def ranges(talk: Talk) -> None:
    for host in HOSTS:
        created = acl_of(host, "t", ALLOW, principal="User:alice")
        answer = talk.ask(f"R1 to R3, R7: {host!r}", CreateAclsRequest(creations=[created]), VERSION)
        talk.note(f"{host!r}, the words", answer.results[0].error_message)
    for host in ("10.0.0.5", "10.0.0.0/8", "10.0.0.1/8"):  # R6
        describe_request = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=host,
            operation=ANY,
            permission_type=ANY,
        )
        found = talk.quietly(describe_request, VERSION)
        talk.note(f"R6: {host} finds", [acl.host for each in found.resources for acl in each.acls])
    for number, acls in enumerate(
        (
            [("127.0.0.0/8", ALLOW)],
            [("10.0.0.0/8", ALLOW)],
            [("127.0.0.0/8", ALLOW), ("127.0.0.1/32", DENY)],
            [("127.0.0.0/8", ALLOW), ("127.0.0.2/32", DENY)],
        )
    ):
        topic = f"of-{number}"
        talk.make_topic(topic)
        creations = [acl_of(host, topic, permission) for host, permission in acls]
        talk.quietly(CreateAclsRequest(creations=creations), VERSION)
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
        talk.ask(f"R4: {acls}", request, 2)


def acl_of(host: str, topic: str, permission: int, principal: str = ANONYMOUS) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name=topic,
        resource_pattern_type=3,
        principal=principal,
        host=host,
        operation=READ,
        permission_type=permission,
    )


@pytest.mark.parametrize("release", EMULATED)
def test_address_ranges_are_accepted_refused_found_and_matched_as_by_kafka(tmp_path: Path, release: str) -> None:
    """Checks that Odradek accepts, refuses, finds and matches address ranges as Kafka does (R1 to R4, R6 and R7 of
    docs/spec/kafka-4.4.md#s5-4)."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}

    def trace(broker: Broker) -> Trace:
        with broker:
            talk = Talk(Place(broker.bootstrap, str(broker.data_dir), ""))
            ranges(talk)
            talk.close()
            return talk.trace()

    kafka = trace(KafkaProcess(tmp_path / "kafka", settings, version=release))
    ours = trace(new_broker(tmp_path / "ours", settings, like=release))
    found = [one for one in differences(kafka, ours) if reason_for(*one) is None]
    assert not found, "\n".join(map(repr, found))


@pytest.mark.parametrize("kind", [KafkaProcess, BrokerProcess])
def test_a_range_that_an_older_release_stored_as_text_begins_to_match(tmp_path: Path, kind: type[Broker]) -> None:
    """A range in an ACL that Kafka 4.3.1 stored matches, although metadata.version is still 30, the level of that
    release (R5 of docs/spec/kafka-4.4.md#s5-4)."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])

    def code(broker: Broker) -> int:
        with Wire(broker.bootstrap) as wire:
            return wire.ask(request, 2, ListOffsetsResponse).topics[0].partitions[0].error_code

    with KafkaProcess(tmp_path / "data", settings, version="4.3.1") as before:
        talk = Talk(Place(before.bootstrap, str(before.data_dir), ""))
        talk.make_topic("t")
        talk.close()
        create(before, (TOPIC, "t", 3, ANONYMOUS, "127.0.0.0/8", READ, ALLOW))
        wait_for("the ACL, which allows nothing", lambda: code(before) == ErrorCode.TOPIC_AUTHORIZATION_FAILED.value)
    with kind(tmp_path / "data", settings) as after:
        wait_for("the ACL", lambda: code(after) == 0)
