"""Tests that Odradek applies and describes stored group settings like Kafka after the broker's limits have become
narrower than the stored values."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.support.broker_process import EMULATED, Broker, KafkaProcess, new_broker
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

FEW: dict[str, object] = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
GROUP_RESOURCE = 32
MAX_SETTINGS = {
    "consumer.session.timeout.ms": "60000",
    "consumer.heartbeat.interval.ms": "15000",
    "consumer.assignment.interval.ms": "15000",
    "share.session.timeout.ms": "60000",
    "share.heartbeat.interval.ms": "15000",
    "share.record.lock.duration.ms": "60000",
    "share.delivery.count.limit": "10",
    "share.partition.max.record.locks": "4000",
}
MIN_SETTINGS = {
    "consumer.session.timeout.ms": "45000",
    "consumer.heartbeat.interval.ms": "5000",
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "5000",
    "share.record.lock.duration.ms": "15000",
    "share.delivery.count.limit": "2",
}
NARROWED: dict[str, object] = {
    "group.consumer.min.heartbeat.interval.ms": 6000,
    "group.consumer.heartbeat.interval.ms": 7000,
    "group.consumer.max.heartbeat.interval.ms": 8000,
    "group.share.min.heartbeat.interval.ms": 6000,
    "group.share.heartbeat.interval.ms": 7000,
    "group.share.max.heartbeat.interval.ms": 8000,
    "group.share.min.record.lock.duration.ms": 16000,
    "group.share.max.record.lock.duration.ms": 31000,
}


def alter(wire: Wire, group: str, settings: dict[str, str]) -> AlterConfigsResourceResponse:
    changed = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changed)
    return wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse).responses[
        0
    ]


def coordinated(wire: Wire) -> None:
    """Waits until the only partition of __consumer_offsets is loaded."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    deadline = time.monotonic() + 30
    while wire.ask(find, 4).coordinators[0].error_code or join(wire, "probe").error_code:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def join(wire: Wire, group: str) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="A",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["nope"],
        topic_partitions=[],
    )
    return wire.ask(request, 1)


def observed(broker: Broker) -> dict[str, Any]:
    with Wire(broker.bootstrap) as wire:
        coordinated(wire)
        found: dict[str, Any] = {}
        for group in ("least", "most", "none"):
            shares = f"{group}-shares"
            beat = ShareGroupHeartbeatRequest(group_id=shares, member_id="A", subscribed_topic_names=["nope"])
            fetch = ShareFetchRequest(group_id=shares, member_id="A", max_wait_ms=0, max_bytes=1, topics=[])
            resources = [
                DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=None)
                for name in (group, shares)
            ]
            request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
            described = wire.ask(request, 4, DescribeConfigsResponse).results
            found[group] = {
                "consumer heartbeat": join(wire, group).heartbeat_interval_ms,
                "share heartbeat": wire.ask(beat, 1).heartbeat_interval_ms,
                "lock": wire.ask(fetch, 1).acquisition_lock_timeout_ms,
                "described": {
                    (result.resource_name, config.name): (
                        config.value,
                        config.config_source,
                        [(each.name, each.value, each.source) for each in config.synonyms],
                    )
                    for result in described
                    for config in result.configs
                },
            }
        return found


def seen_of(broker: Broker) -> list[Any]:
    with broker:
        with Wire(broker.bootstrap) as wire:
            for group, settings in (("least", MIN_SETTINGS), ("most", MAX_SETTINGS)):
                for name in (group, f"{group}-shares"):
                    answer = alter(wire, name, settings)
                    assert answer.error_code == 0, answer
        wide = observed(broker)
        broker.stop()
        broker.overrides |= {name: str(value) for name, value in NARROWED.items()}
        broker.start()
        narrow = observed(broker)
        # Stored values outside the limits do not prevent changes to other settings.
        with Wire(broker.bootstrap) as wire:
            codes = [
                alter(wire, name, {"share.isolation.level": "read_committed"}).error_code for name in ("least", "most")
            ]
        return [wide, narrow, codes]


@pytest.mark.parametrize("release", EMULATED)
def test_values_outside_the_limits_count_as_the_nearest_allowed_ones(tmp_path: Path, release: str) -> None:
    pair = KafkaProcess(tmp_path / "kafka", FEW, version=release), new_broker(tmp_path / "ours", FEW, like=release)
    with ThreadPoolExecutor(2) as both:
        kafka, ours = both.map(seen_of, pair)
    assert ours == kafka
    narrow = ours[1]
    assert [narrow[group]["consumer heartbeat"] for group in ("least", "none", "most")] == [6000, 7000, 8000]
    assert [narrow[group]["share heartbeat"] for group in ("least", "none", "most")] == [6000, 7000, 8000]
    assert [narrow[group]["lock"] for group in ("least", "none", "most")] == [16000, 30000, 31000]
