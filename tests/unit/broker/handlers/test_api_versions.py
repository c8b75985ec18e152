"""Tests that ApiVersions lists the supported versions, and that older clients receive only responses that they can
read.

Version 5: docs/spec/kafka-4.4.md#s1-2.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.api.served import SERVED
from odradek.broker.broker import OFFERED
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.supported_features import SUPPORTED_FEATURES
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from tests.support.oracle import ORACLE, needs_oracle
from tests.support.peer import Handler, Peer, server_with

NEWEST = 5
CLUSTER, NODE_ID = "bm9kZXMtb2Ytb25lLTAwMQ", 1
AHEAD_OF_KAFKA = {
    ApiKey.INIT_PRODUCER_ID.value: (0, 6),  # KIP-939; ADR 9
    ApiKey.TXN_SHARE_ACKNOWLEDGE.value: (0, 0),  # KIP-1289; ADR 35
}


def broker_with(**levels: int) -> SimpleNamespace:
    image = MetadataImage()
    for name, level in levels.items():
        image.replay(FeatureLevelRecord(name=name.replace("_", "."), feature_level=level))
    image.next_offset = 17
    return SimpleNamespace(metadata=SimpleNamespace(image=image), offered=OFFERED, cluster_id=CLUSTER, node_id=NODE_ID)


def ask(version: int, *, name: str = "probe", software_version: str = "1.0", broker: object = None) -> Any:
    peer = Peer(server_with({ApiKey.API_VERSIONS: Handler(0, NEWEST)}, broker=broker or broker_with()))
    message = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    peer.ask(message if version >= 3 else ApiVersionsRequest(), version)
    return peer.answer(ApiKey.API_VERSIONS, version)


@pytest.mark.parametrize("version", range(NEWEST + 1))
async def test_every_version_lists_exactly_what_is_served_in_the_order_of_the_keys(version: int) -> None:
    answer = ask(version, broker=broker_with(share_version=1, transaction_version=2, odradek_share_transactions=1))
    shown = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    assert shown == sorted((key.value, one.min_version, one.max_version) for key, one in SERVED.items())
    assert answer.error_code == ErrorCode.NONE.value


@needs_oracle
def test_the_versions_of_each_served_api_are_those_that_kafka_advertises() -> None:
    rows = json.loads((ORACLE / "exchanges/api-versions-4.4.0.json").read_text())["apis"]
    advertised = {row["key"]: (row["min"], row["max"]) for row in rows}
    shown = {key.value: (handler.min_version, handler.max_version) for key, handler in SERVED.items()}
    assert shown.items() <= (advertised | AHEAD_OF_KAFKA).items()


async def test_version_3_hides_features_that_begin_at_level_0_and_version_4_shows_them() -> None:
    assert {row.name for row in ask(3).supported_features} == {
        name for name, (lowest, _) in SUPPORTED_FEATURES.items() if lowest > 0
    }
    shown = {row.name: (row.min_version, row.max_version) for row in ask(4).supported_features}
    assert shown == SUPPORTED_FEATURES


async def test_finalized_features_come_from_the_metadata_log_with_its_last_offset_as_epoch() -> None:
    answer = ask(4, broker=broker_with(metadata_version=30))
    rows = [(row.name, row.min_version_level, row.max_version_level) for row in answer.finalized_features]
    assert rows == [("metadata.version", 30, 30)]
    assert answer.finalized_features_epoch == 16


async def test_a_finalized_feature_that_is_not_served_is_not_shown() -> None:
    assert ask(4, broker=broker_with(other_version=1)).finalized_features == []


async def test_the_name_of_the_client_software_is_kept_with_its_connection() -> None:
    peer = Peer(server_with({ApiKey.API_VERSIONS: Handler(0, NEWEST)}, broker=broker_with()))
    peer.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.1"), 3)
    info = peer.connection.info
    assert (info.client_software_name, info.client_software_version) == ("librdkafka", "2.16.1")


@pytest.mark.parametrize(
    ("name", "version"), [("not valid!", ""), ("", "1.0"), ("-kgo", "1.0"), ("kgo", "1.0-"), ("a", "b c")]
)
async def test_an_invalid_client_name_or_version_is_refused_without_a_list_of_apis(name: str, version: str) -> None:
    answer = ask(3, name=name, software_version=version)
    assert answer.error_code == ErrorCode.INVALID_REQUEST.value
    assert answer.api_keys == []


def ask_for_node(cluster_id: str | None, node_id: int, name: str = "probe") -> tuple[Peer, Any]:
    peer = Peer(server_with({ApiKey.API_VERSIONS: Handler(0, NEWEST)}, broker=broker_with()))
    request = ApiVersionsRequest(
        client_software_name=name, client_software_version="1.0", cluster_id=cluster_id, node_id=node_id
    )
    peer.ask(request, 5)
    return peer, peer.answer(ApiKey.API_VERSIONS, 5)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, "NONE"),  # A1: the request contains no ids
        (CLUSTER, NODE_ID, "NONE"),  # A2: this node's ids
        (CLUSTER, 2, "REBOOTSTRAP_REQUIRED"),  # A3: another node id
        (CLUSTER, -2, "REBOOTSTRAP_REQUIRED"),
        ("another", NODE_ID, "REBOOTSTRAP_REQUIRED"),  # A4: another cluster id
        ("another", 2, "REBOOTSTRAP_REQUIRED"),
        ("", NODE_ID, "REBOOTSTRAP_REQUIRED"),
        (CLUSTER, -1, "INVALID_REQUEST"),  # A5: only a cluster id
        ("", -1, "INVALID_REQUEST"),
        (None, NODE_ID, "INVALID_REQUEST"),  # A6: only a node id
        (None, -2, "INVALID_REQUEST"),
    ],
)
async def test_a_client_that_means_another_node_is_sent_back_to_its_bootstrap_servers(
    cluster_id: str | None, node_id: int, code: str
) -> None:
    """A1 to A6: if the request contains a cluster id and a node id, they must be the node's own."""
    _, answer = ask_for_node(cluster_id, node_id)
    assert ErrorCode(answer.error_code).name == code
    assert bool(answer.api_keys) == (code == "NONE")


async def test_the_name_of_the_software_is_checked_before_the_node_that_is_meant() -> None:
    """A7: an invalid software name is refused before the node id is checked."""
    _, answer = ask_for_node("another", 2, name="not valid!")
    assert answer.error_code == ErrorCode.INVALID_REQUEST.value


async def test_the_connection_of_a_client_that_means_another_node_stays_open_and_its_name_is_not_kept() -> None:
    peer, answer = ask_for_node("another", 2)
    assert answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED.value
    assert peer.connection.info.client_software_name != "probe"
    peer.ask(ApiVersionsRequest(client_software_name="probe", client_software_version="1.0"), 5)
    assert peer.answer(ApiKey.API_VERSIONS, 5).error_code == 0
