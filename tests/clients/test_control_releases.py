"""Tests that a cluster that emulates Kafka 3.9, 4.0 or 4.3 offers only the APIs and settings of that release, and that
clients adapt to it (docs/testing.md)."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from odradek.broker.api.served import SERVED
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.support.broker_process import BrokerProcess
from tests.support.wire import ClosedByBroker, Wire

RECORDED: dict[str, Any] = json.loads(
    resources.files("odradek.broker.control.clusters").joinpath("releases.json").read_text()
)
NAMES = sorted(RECORDED)


def api_versions(bootstrap: str, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with Wire(bootstrap) as wire:
        return wire.ask(request if version >= 3 else ApiVersionsRequest(), version, ApiVersionsResponse)


def shown(bootstrap: str) -> dict[ApiKey, tuple[int, int]]:
    return {ApiKey(row.api_key): (row.min_version, row.max_version) for row in api_versions(bootstrap).api_keys}


@pytest.mark.parametrize("name", NAMES)
def test_a_cluster_offers_the_versions_that_both_its_release_and_odradek_support(odradek: Odradek, name: str) -> None:
    with odradek.cluster(emulate=name) as kafka:
        answer = api_versions(kafka.bootstrap)
        of_release = RECORDED[name]["apis"]
        for api, (least, most) in shown(kafka.bootstrap).items():
            lowest, highest = of_release[api.kafka_name]
            assert (least, most) == (max(lowest, SERVED[api].min_version), min(highest, SERVED[api].max_version))
        served = {api.kafka_name for api in SERVED}
        assert {api.kafka_name for api in shown(kafka.bootstrap)} == of_release.keys() & served
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels == RECORDED[name]["finalized"]


def test_the_releases_differ_as_they_did(odradek: Odradek) -> None:
    with odradek.cluster(emulate="3.9") as old, odradek.cluster(emulate="4.0") as middle:
        with odradek.cluster(emulate="4.3") as new:
            versions = [shown(kafka.bootstrap) for kafka in (old, middle, new)]
        assert [each[ApiKey.PRODUCE][1] for each in versions] == [11, 12, 13]
        assert [each[ApiKey.END_TXN][1] for each in versions] == [4, 5, 5]
        assert [each[ApiKey.JOIN_GROUP][0] for each in versions] == [0, 2, 0]
        assert [ApiKey.SHARE_FETCH in each for each in versions] == [False, False, True]


def test_a_cluster_has_the_settings_and_rules_of_its_release(odradek: Odradek) -> None:
    """Kafka 4.3 has none of the settings that Kafka 4.4 introduced (docs/spec/kafka-4.4.md#s4)."""
    for release, limit, highest in (("4.3", None, 4), ("4.4", "2147483639", 5)):
        with odradek.cluster(emulate=release) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            (configs,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
            found = configs.result(10).get("max.decompressed.message.bytes")
            assert (found and found.value) == limit
            versions = shown(kafka.bootstrap)
            assert versions[ApiKey.API_VERSIONS][1] == highest
            assert (ApiKey.UNREGISTER_CONTROLLER in versions) == (release == "4.4")
            assert ApiKey.TXN_SHARE_ACKNOWLEDGE not in versions


def test_a_version_of_a_later_release_closes_the_connection(odradek: Odradek) -> None:
    with odradek.cluster(emulate="3.9") as kafka, Wire(kafka.bootstrap) as wire, pytest.raises(ClosedByBroker):
        wire.ask(EndTxnRequest(transactional_id="t"), 5)


def test_a_rule_does_not_answer_an_api_version_that_the_release_lacks(odradek: Odradek) -> None:
    with odradek.cluster(emulate="3.9") as kafka, Wire(kafka.bootstrap) as wire:
        kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "INVALID_TXN_STATE"}, "unused": "ok"})
        with pytest.raises(ClosedByBroker):
            wire.ask(EndTxnRequest(transactional_id="t"), 5)


def test_an_api_versions_request_of_a_later_version_gets_the_supported_versions(odradek: Odradek) -> None:
    with odradek.cluster(emulate="3.9") as kafka, Wire(kafka.bootstrap) as wire:
        wire.send_bytes(bytes.fromhex("0000000b 0012 0063 00000001 ffff 00"))
        answer = wire.receive(ApiKey.API_VERSIONS.value, 99)
        assert isinstance(answer, ApiVersionsResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION.value
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]


def test_a_feature_that_the_release_does_not_know_is_refused(odradek: Odradek) -> None:
    update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
    for name, code in (("4.0", ErrorCode.INVALID_UPDATE_VERSION), ("4.3", ErrorCode.NONE)):
        with odradek.cluster(emulate=name) as kafka, Wire(kafka.bootstrap) as wire:
            answer = wire.ask(UpdateFeaturesRequest(feature_updates=[update]), 1, UpdateFeaturesResponse)
            assert answer.error_code == code.value


def test_consumer_groups_are_unsupported_if_group_version_is_not_finalised(odradek: Odradek) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    # No client has looked up the coordinator, so a supported join receives NOT_COORDINATOR.
    for name, code in (("3.9", ErrorCode.UNSUPPORTED_VERSION), ("4.0", ErrorCode.NOT_COORDINATOR)):
        with odradek.cluster(emulate=name) as kafka, Wire(kafka.bootstrap) as wire:
            assert wire.ask(request, 0, ConsumerGroupHeartbeatResponse).error_code == code.value


def test_defaults_are_those_of_the_release_except_for_settings_of_the_cluster(odradek: Odradek) -> None:
    name, longest = "log.message.timestamp.after.max.ms", str(2**63 - 1)
    for release, settings, value in (("3.9", {}, longest), ("4.0", {}, "3600000"), ("3.9", {name: 7}, "7")):
        with odradek.cluster(emulate=release, settings=settings) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            (configs,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
            assert configs.result(10)[name].value == value


def make_topics(kafka: Cluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        made.result(20)


@pytest.mark.parametrize(("name", "level"), [("3.9", 0), ("4.0-tv1", 1), ("4.0", 2), ("4.3", 2), ("4.4", 2)])
def test_librdkafka_commits_and_reads_at_the_transaction_version_of_the_release(
    odradek: Odradek, name: str, level: int
) -> None:
    with odradek.cluster(emulate=name) as kafka:
        make_topics(kafka, "orders")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        for number in range(2):
            producer.begin_transaction()
            producer.produce("orders", b"%d" % number)
            producer.commit_transaction(30)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [message.value() for message in consumer.consume(2, 30)]
        consumer.close()
        assert found == [b"0", b"1"]
        ends = {each["version"] for each in kafka.requests(api="EndTxn")}
        assert max(ends) <= RECORDED[name]["apis"]["EndTxn"][1]
        levels = {each.name: each.max_version_level for each in api_versions(kafka.bootstrap).finalized_features}
        assert levels.get("transaction.version", 0) == level


def test_a_cluster_emulates_its_release_permanently(odradek: Odradek) -> None:
    with odradek.cluster(emulate="4.0-tv1", nodes=2) as kafka:
        before = shown(kafka.bootstrap.split(",")[1])
        kafka.restart()
        assert shown(kafka.bootstrap.split(",")[0]) == before
        with odradek.cluster(fork=kafka) as fork:
            assert shown(fork.bootstrap.split(",")[0]) == before
            assert fork.call("GET", "")[1]["emulates"] == "4.0-tv1"
        with pytest.raises(Refused, match="a fork emulates the same release as its source"):
            odradek.cluster(fork=kafka, emulate="4.0")


def test_a_release_that_is_unknown_is_refused_by_name(odradek: Odradek) -> None:
    with pytest.raises(Refused, match=r"emulate: 4\.1 is unknown") as refused:
        odradek.cluster(emulate="4.1")
    assert refused.value.status == 400
    with pytest.raises(Refused, match="emulate must be a non-empty string"):
        odradek.call("POST", "/clusters", {"emulate": 4})


def test_a_preset_of_a_later_release_is_refused(odradek: Odradek) -> None:
    with pytest.raises(Refused, match="is not supported by this broker"):
        odradek.cluster(emulate="3.9", preset="share-lock-limit")


class BrokerThatEmulates(BrokerProcess):
    def command(self, ready_file: Path) -> list[str]:
        return [*super().command(ready_file), "--emulate", "3.9"]


def test_the_broker_of_a_process_emulates_a_release(tmp_path: Path) -> None:
    with BrokerThatEmulates(tmp_path / "data", {"odradek.http.port": 0}) as broker:
        assert shown(broker.bootstrap)[ApiKey.PRODUCE] == (0, 11)
        assert [each.name for each in api_versions(broker.bootstrap).finalized_features] == ["metadata.version"]
