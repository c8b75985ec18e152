"""Tests that UnregisterController is refused without ALTER on the cluster, and below metadata.version 33:
docs/spec/kafka-4.4.md#s3-2."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from odradek.protocol.messages.unregister_controller_response import UnregisterControllerResponse
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

NODE = 1
ALLOW, DENY, LITERAL = 3, 2, 3
ACTIVE = "Controller cannot unregister itself while it is active."
OLD = "The current MetadataVersion is too old to support controller unregistration."
PATIENCE_S = 20.0


def unregister(broker: Broker, controller_id: int) -> UnregisterControllerResponse:
    with Wire(broker.bootstrap) as wire:
        return wire.ask(UnregisterControllerRequest(controller_id=controller_id), 0, UnregisterControllerResponse)


def refuse_alter(broker: Broker) -> None:
    """Allows all principals all operations on the cluster except ALTER."""
    creations = [
        AclCreation(
            resource_type=ResourceType.CLUSTER.value,
            resource_name=CLUSTER_NAME,
            resource_pattern_type=LITERAL,
            principal="User:*",
            host="*",
            operation=operation.value,
            permission_type=permission,
        )
        for operation, permission in ((Operation.ALL, ALLOW), (Operation.ALTER, DENY))
    ]
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
    assert [each.error_code for each in answer.results] == [0, 0]


@pytest.mark.parametrize("kind", [KafkaProcess, BrokerProcess])
def test_without_alter_on_the_cluster_no_controller_is_unregistered(tmp_path: Path, kind: type[Broker]) -> None:
    """The authorization is checked first (U1). Each broker has its own error message."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with kind(tmp_path / "data", settings) as broker:
        refuse_alter(broker)
        deadline = time.monotonic() + PATIENCE_S  # Kafka responds before its authorizer knows the ACL.
        while (answer := unregister(broker, 9)).error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED.value:
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
        assert unregister(broker, NODE).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.value
        assert answer.error_message


@pytest.mark.parametrize("kind", [KafkaProcess, BrokerProcess])
def test_below_metadata_version_33_only_the_active_controller_has_another_answer(
    tmp_path: Path, kind: type[Broker]
) -> None:
    """The check for the active controller (U2) comes before the check of the level (U3). Kafka 4.3.1 formats the
    directory, so metadata.version is 30."""
    with KafkaProcess(tmp_path / "data", version="4.3.1"):
        pass
    with kind(tmp_path / "data") as broker:
        answers = {each: unregister(broker, each) for each in (NODE, 9, -1)}
        assert {each: (answer.error_code, answer.error_message) for each, answer in answers.items()} == {
            NODE: (ErrorCode.INVALID_REQUEST.value, ACTIVE),
            9: (ErrorCode.UNSUPPORTED_VERSION.value, OLD),
            -1: (ErrorCode.UNSUPPORTED_VERSION.value, OLD),
        }
