"""Tests UnregisterController in a cluster with one controller (docs/spec/kafka-4.4.md#s3-2)."""

from types import SimpleNamespace

import pytest

from odradek.broker.api.context import Authorizer
from odradek.broker.handlers.cluster.cluster import unregister_controller
from odradek.broker.metadata.image import Node
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from tests.support.broker_scene import NODE_ID, BrokerScene
from tests.support.fake_disk import FakeDisk
from tests.support.transaction_broker import Denying

E = ErrorCode


@pytest.fixture
def scene() -> BrokerScene:
    scene = BrokerScene(FakeDisk(), "/data")
    node = Node(NODE_ID, b"directory of one")
    scene.broker.metadata = SimpleNamespace(image=scene.image, node=node)
    return scene


def refused(
    scene: BrokerScene, controller_id: int, metadata_version: int = 33, authorizer: Authorizer | None = None
) -> tuple[ErrorCode, str | None]:
    context = scene.context(ApiKey.UNREGISTER_CONTROLLER, 0)
    if authorizer is not None:
        context.authorizer = authorizer
    scene.image.replay(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
    with pytest.raises(KafkaError) as caught:
        unregister_controller(UnregisterControllerRequest(controller_id=controller_id), context, scene.broker)
    return caught.value.code, caught.value.message


def test_alter_on_the_cluster_is_required(scene: BrokerScene) -> None:
    """U1: a client without ALTER on the cluster receives CLUSTER_AUTHORIZATION_FAILED."""
    authorizer = Denying()
    authorizer.denied.add((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    assert refused(scene, NODE_ID, authorizer=authorizer)[0] is E.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("metadata_version", [30, 33])
def test_the_active_controller_cannot_unregister_itself(scene: BrokerScene, metadata_version: int) -> None:
    """U2: the cluster's only controller is active, so it cannot be unregistered."""
    refusal = refused(scene, NODE_ID, metadata_version)
    assert refusal == (E.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")


def test_before_metadata_version_33_no_controller_can_be_unregistered(scene: BrokerScene) -> None:
    """U3: the request is not supported at an earlier metadata.version."""
    refusal = refused(scene, 9, 32)
    assert refusal == (
        E.UNSUPPORTED_VERSION,
        "The current MetadataVersion is too old to support controller unregistration.",
    )


@pytest.mark.parametrize("controller_id", [9, -1])
def test_the_error_names_an_unregistered_controller(scene: BrokerScene, controller_id: int) -> None:
    """U4: the error message names the controller id."""
    refusal = refused(scene, controller_id)
    assert refusal == (E.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered.")
