"""Tests that AlterReplicaLogDirs answers like Kafka 4.3.1 with one log directory.

`security/test_authorization_matrix.py` tests the required rights.
"""

import pytest

from odradek.broker.handlers.cluster.replicas import alter_replica_log_dirs
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from tests.support.broker_scene import BrokerScene
from tests.support.fake_disk import FakeDisk

E = ErrorCode


@pytest.fixture
def scene() -> BrokerScene:
    scene = BrokerScene(FakeDisk(), "/data")
    scene.topic("t", 2)
    return scene


def moved(scene: BrokerScene, *moves: tuple[str, str, list[int]], version: int = 2) -> dict[str, dict[int, ErrorCode]]:
    dirs = [
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=indexes)])
        for path, topic, indexes in moves
    ]
    context = scene.context(ApiKey.ALTER_REPLICA_LOG_DIRS, version)
    response = alter_replica_log_dirs(AlterReplicaLogDirsRequest(dirs=dirs), context, scene.broker)
    answer = decode(AlterReplicaLogDirsResponse, version, encode(response, version))
    return {
        topic.topic_name: {one.partition_index: E(one.error_code) for one in topic.partitions}
        for topic in answer.results
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_may_stay_in_its_directory(scene: BrokerScene, version: int) -> None:
    errors = moved(scene, ("/data", "t", [0, 1]), version=version)
    assert errors == {"t": {0: E.NONE, 1: E.NONE}}


@pytest.mark.parametrize("path", ["/data/", "/data/../data", "/elsewhere", "data", ""])
def test_a_move_to_another_directory_is_refused(scene: BrokerScene, path: str) -> None:
    errors = moved(scene, (path, "t", [0]), (path, "none", [0]))
    assert errors == {"t": {0: E.LOG_DIR_NOT_FOUND}, "none": {0: E.LOG_DIR_NOT_FOUND}}


def test_an_unknown_replica_is_not_moved(scene: BrokerScene) -> None:
    errors = moved(scene, ("/data", "t", [1, 9]), ("/data", "none", [0]))
    assert errors == {"t": {1: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}, "none": {0: E.UNKNOWN_TOPIC_OR_PARTITION}}


def test_the_last_directory_named_for_a_replica_counts(scene: BrokerScene) -> None:
    assert moved(scene, ("/data", "t", [0]), ("/elsewhere", "t", [0])) == {"t": {0: E.LOG_DIR_NOT_FOUND}}
    assert moved(scene) == {}
