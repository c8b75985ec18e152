"""Tests that the members of a streams group need ACLs, as do clients that describe the group.

Rules: docs/spec/streams-groups.md#s9-1, #s13-7. ANONYMOUS is an administrator and uses a listener without passwords.
Alice uses a listener with SASL and has only the rights that a test grants her.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.clients.speakers import wait_for
from tests.conformance.differential.conversation import Place, Talk
from tests.conformance.streams_scene import (
    ALL,
    I4,
    MISSING_INTERNAL,
    SETTINGS,
    Scene,
    subtopology,
    talk_to,
    topology,
)
from tests.conformance.test_acls_as_kafka import create, described
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.reserved_port import ReservedPort

pytestmark = needs_kafka

TOPIC, GROUP = 2, 3  # types of resources
READ, CREATE, DESCRIBE = 3, 5, 8
LITERAL, ALLOW = 3, 3
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PATIENCE_S = 30.0
HIDDEN = "The described group uses topics that the client is not authorized to describe."
REPARTITION, OUTPUT, CHANGELOG = "secret-rp", "secret-out", "secret-st"


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """A broker with a second listener, for Alice."""

    broker: Broker
    users: str

    def grant(self, resource_type: int, name: str, operation: int) -> None:
        """Grants Alice a right and waits until the broker knows it."""
        acl = (resource_type, name, LITERAL, "User:alice", "*", operation, ALLOW)
        create(self.broker, acl)
        wait_for("the ACL", lambda: acl in described(self.broker), PATIENCE_S)


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    data_dir = tmp_path_factory.mktemp(f"streams-rights-{request.param}") / "data"
    admins, users, controller = ReservedPort(), ReservedPort(), ReservedPort()
    is_kafka = request.param == "kafka"
    listeners = {"PLAINTEXT": admins.number, "USERS": users.number}
    protocols = {"PLAINTEXT": "PLAINTEXT", "USERS": "SASL_PLAINTEXT"}
    settings: dict[str, object] = {
        **SETTINGS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f'{PLAIN} user_alice="pw";',
        "advertised.listeners": _addresses(listeners),
    }
    if is_kafka:
        listeners["CONTROLLER"] = controller.number
        protocols["CONTROLLER"] = "PLAINTEXT"
        settings["controller.quorum.voters"] = f"1@127.0.0.1:{controller.number}"
    settings["listeners"] = _addresses(listeners)
    settings["listener.security.protocol.map"] = ",".join(f"{name}:{each}" for name, each in protocols.items())
    broker: Broker = (
        KafkaProcess(data_dir, settings, port=admins.number, heap="-Xmx512M")
        if is_kafka
        else BrokerProcess(data_dir, settings, port=admins.number)
    )
    with broker:
        yield SecuredBroker(broker, f"127.0.0.1:{users.number}")


def _addresses(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


@pytest.fixture
def of_admin(secured: SecuredBroker) -> Iterator[Scene]:
    talk = talk_to(secured.broker)
    yield Scene(talk, "secret", secured.broker.name == "kafka")
    talk.close()


@pytest.fixture
def of_alice(secured: SecuredBroker) -> Iterator[Scene]:
    """Yields a scene for the same group, over a connection authenticated as Alice."""
    talk = Talk(Place(secured.users, str(secured.broker.data_dir), ""), client_id="streams")
    assert talk.quietly(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert talk.quietly(SaslAuthenticateRequest(auth_bytes=b"\0alice\0pw"), 2).error_code == 0
    yield Scene(talk, "secret", secured.broker.name == "kafka")
    talk.close()


def test_scenario_108_a_member_needs_rights_to_its_group_and_to_each_topic(
    secured: SecuredBroker, of_admin: Scene, of_alice: Scene
) -> None:
    of_admin.make_topic(I4, 4)
    of_admin.wait_until_coordinator_knows(I4, 4)
    of_alice.topology = topology(
        subtopology("0", [I4], sinks=[REPARTITION, OUTPUT]),
        subtopology("1", [], repartitions=[REPARTITION], changelogs=[CHANGELOG]),
    )
    a = of_alice.member("a")

    assert a.join().refused == (ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    secured.grant(GROUP, of_alice.group, READ)
    for topic in (I4, REPARTITION, OUTPUT, CHANGELOG):
        assert a.join().refused == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        secured.grant(TOPIC, topic, DESCRIBE)

    missing = f"Internal topics are missing: {REPARTITION}, {CHANGELOG}; Unauthorized to CREATE on topics"
    joined = a.join()
    assert (joined.statuses, joined.details) == ([MISSING_INTERNAL], [f"{missing} {REPARTITION}, {CHANGELOG}."])
    secured.grant(TOPIC, CHANGELOG, CREATE)
    assert a.beat().details == [f"{missing} {REPARTITION}."]
    assert [of_admin.partitions_of(topic) for topic in (REPARTITION, CHANGELOG)] == [0, 0]
    secured.grant(TOPIC, REPARTITION, CREATE)
    assert a.beat_for_tasks().epoch_and_tasks == (3, {**ALL, "1": [0, 1, 2, 3]})
    assert [of_admin.partitions_of(topic) for topic in (REPARTITION, CHANGELOG)] == [4, 4]


def test_scenario_109_describing_a_group_requires_describe_on_its_topics(
    secured: SecuredBroker, of_admin: Scene, of_alice: Scene
) -> None:
    of_admin.group = of_alice.group = "with-a-hidden-topic"
    of_admin.topology = topology(subtopology("0", [of_admin.make_source("source", 2)]))
    of_admin.member("a").join()

    def shown() -> tuple[ErrorCode, str | None, int, bool]:
        group = of_alice.described()
        return ErrorCode(group.error_code), group.error_message, len(group.members), group.topology is not None

    assert shown() == (ErrorCode.GROUP_AUTHORIZATION_FAILED, None, 0, False)
    secured.grant(GROUP, of_alice.group, DESCRIBE)
    assert shown() == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN, 0, False)
    secured.grant(TOPIC, of_admin.named("source"), DESCRIBE)
    assert shown() == (ErrorCode.NONE, None, 1, True)
