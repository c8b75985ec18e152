"""Helpers for tests of Odradek's share consumer: groups that read from the start, and consumers with short waits."""

from __future__ import annotations

from odradek.client import ShareRecord
from odradek.client.sync import ShareConsumer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.clients.speakers import wait_for
from tests.support.wire import Wire

SETTINGS: dict[str, object] = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.session.timeout.ms": 1_000,
    "group.share.session.timeout.ms": 5_000,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.min.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
QUICK = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 100, "fetch_max_wait_ms": 100}
GROUP_RESOURCE = 32
LATEST_VERSION = 1


def share_group(bootstrap: str, group: str, **settings: object) -> str:
    """Configures a share group to read from the first record and returns its name. Setting names use `_` in place of
    `.`."""
    configs = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[AlterableConfig(name=name, config_operation=0, value=str(value)) for name, value in configs.items()],
    )
    wire = Wire(bootstrap)
    answer = wire.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), LATEST_VERSION, IncrementalAlterConfigsResponse
    )
    wire.close()
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message
    return group


def worker(bootstrap: str, topic: str, group: str, mode: str = "explicit", **more: object) -> ShareConsumer:
    settings = QUICK | {"share_acknowledgement_mode": mode} | more
    return ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **settings)  # type: ignore[arg-type]


def poll(consumer: ShareConsumer, timeout_ms: float = 100) -> list[ShareRecord]:
    return [record for records in consumer.getmany(timeout_ms=timeout_ms).values() for record in records]


def first_of(consumer: ShareConsumer) -> list[ShareRecord]:
    """Polls until any records arrive and returns them."""
    found: list[ShareRecord] = []
    wait_for("records", lambda: more(found, consumer))
    return found


def more(found: list[ShareRecord], *consumers: ShareConsumer) -> list[ShareRecord]:
    """Polls each consumer once and adds the records to `found`. Returns `found`."""
    for consumer in consumers:
        found += poll(consumer)
    return found


def serves_share_groups(bootstrap: str) -> bool:
    wire = Wire(bootstrap)
    answer = wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    wire.close()
    return ApiKey.SHARE_GROUP_HEARTBEAT.value in {api.api_key for api in answer.api_keys}


def values(records: list[ShareRecord]) -> list[bytes | None]:
    return [record.value for record in records]
