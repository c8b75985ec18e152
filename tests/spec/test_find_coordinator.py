"""Tests that FindCoordinator creates the coordinator's topic if necessary, and names the only broker as soon as the
topic exists."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers.groups.find_coordinator import find_coordinator
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE
from tests.support.broker_scene import BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk

GROUP, SHARE = 0, 2
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE.value
SHARE_PARTITION = "a:group:AAAAAAAAAAAAAAAAAAAAAA:0"


class Scene:
    """A broker that creates its internal topics only when the test allows it."""

    def __init__(self) -> None:
        self.scene = BrokerScene(FakeDisk(), "/data")
        self.asked_for: list[str] = []
        self.made: list[Deferred[Any]] = []
        self.scene.broker.auto_creation = SimpleNamespace(create_internal=self._create)
        self.scene.broker.groups = SimpleNamespace(partition_for=lambda group_id: len(group_id) % 3)
        self.scene.broker.share_coordinator = SimpleNamespace(partition_for=lambda key: len(key) % 3)

    def _create(self, name: str) -> Deferred[Any]:
        self.asked_for.append(name)
        self.made.append(Deferred())
        return self.made[-1]

    def ask(self, version: int, *keys: str, key_type: int = GROUP) -> Any:
        if version >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        else:
            request = FindCoordinatorRequest(key_type=key_type, key=keys[0])
        return find_coordinator(request, self.scene.context(ApiKey.FIND_COORDINATOR, version), self.scene.broker)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_first_find_coordinator_of_a_group_creates_the_offsets_topic_and_waits_for_it(scene: Scene) -> None:
    answer = scene.ask(3, "g")
    assert scene.asked_for == [GROUP_OFFSETS]
    assert isinstance(answer, Deferred)
    assert not answer.is_done
    scene.scene.topic(GROUP_OFFSETS, 3)
    scene.made[0].resolve([])
    found = answer_of(answer)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "localhost", 9092)


def test_if_the_topic_cannot_be_made_the_coordinator_is_not_available(scene: Scene) -> None:
    answer = scene.ask(3, "g")
    scene.made[0].fail(KafkaError(ErrorCode.POLICY_VIOLATION))
    found = answer_of(answer)
    assert (found.error_code, found.node_id, found.host, found.port) == (NOT_AVAILABLE, -1, "", -1)


def test_each_key_is_answered_for_itself_from_version_4_on(scene: Scene) -> None:
    scene.scene.topic(GROUP_OFFSETS, 3)
    scene.scene.image.topics[GROUP_OFFSETS].partitions[2].leader = None
    found = scene.ask(4, "a", "", "bb")
    assert [(one.key, one.error_code) for one in found.coordinators] == [("a", 0), ("", 0), ("bb", NOT_AVAILABLE)]
    assert [one.error_message for one in found.coordinators] == ["", "", ""]


@pytest.mark.parametrize(("version", "message"), [(0, ""), (1, "NONE"), (3, "NONE")])
def test_versions_1_to_3_have_an_error_message_of_none(scene: Scene, version: int, message: str) -> None:
    scene.scene.topic(GROUP_OFFSETS, 3)
    assert scene.ask(version, "g").error_message == message


def test_an_unknown_key_type_is_refused(scene: Scene) -> None:
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        scene.ask(4, "x", key_type=3)


@pytest.mark.parametrize(
    ("version", "key", "code"),
    [
        (5, SHARE_PARTITION, ErrorCode.INVALID_REQUEST),
        (6, SHARE_PARTITION, ErrorCode.NONE),
        (6, "no such form", ErrorCode.INVALID_REQUEST),
        (6, SHARE_PARTITION.replace("0", "x"), ErrorCode.INVALID_REQUEST),
        (6, "group:no-topic-id:0", ErrorCode.INVALID_REQUEST),
        (6, f"of:colons:{'A' * 22}:-1", ErrorCode.NONE),
    ],
)
def test_share_partitions_are_asked_for_by_name_from_version_6_on(
    scene: Scene, version: int, key: str, code: ErrorCode
) -> None:
    scene.scene.topic(SHARE_GROUP_STATE, 3)
    (found,) = scene.ask(version, key, key_type=SHARE).coordinators
    assert found.error_code == code.value


def test_the_first_find_coordinator_of_a_share_partition_creates_the_state_topic(scene: Scene) -> None:
    answer = scene.ask(6, SHARE_PARTITION, key_type=SHARE)
    assert scene.asked_for == [SHARE_GROUP_STATE]
    scene.scene.topic(SHARE_GROUP_STATE, 3)
    scene.made[0].resolve([])
    (found,) = answer_of(answer).coordinators
    assert (found.error_code, found.node_id) == (0, 1)


def test_finding_the_coordinator_of_a_group_requires_describe(scene: Scene) -> None:
    scene.scene.topic(GROUP_OFFSETS, 3)

    class Nobody:
        def allows(self, *_: object, **__: object) -> bool:
            return False

        passes = allows_on_any = allows

    context = scene.scene.context(ApiKey.FIND_COORDINATOR, 4)
    context.authorizer = Nobody()
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    (found,) = answer_of(find_coordinator(request, context, scene.scene.broker)).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.GROUP_AUTHORIZATION_FAILED.value, -1)
