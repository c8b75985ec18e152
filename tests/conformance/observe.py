"""Collects everything that a broker serves from its data directory, in the format of the oracle kit's `served.json`."""

import base64
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.describe_producers_request import TopicRequest as ProducersOf
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from tests.support.wire import Wire

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
DYNAMIC_TOPIC_CONFIG = 1
TOPIC_RESOURCE = 2
STILL_LOADING = 14  # COORDINATOR_LOAD_IN_PROGRESS


class Observer:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._wire = Wire(bootstrap)

    def close(self) -> None:
        self._wire.close()

    def features(self) -> dict[str, int]:
        request = ApiVersionsRequest(client_software_name="observer", client_software_version="1")
        answer = self._wire.ask(request, 4, ApiVersionsResponse)
        return {one.name: one.max_version_level for one in answer.finalized_features}

    def topics(self) -> dict[str, Any]:
        """Returns all topics except internal ones, by name."""
        answer = self._wire.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        return {str(one.name): self._topic(one) for one in answer.topics if not one.is_internal}

    def _topic(self, topic: MetadataResponseTopic) -> dict[str, Any]:
        assert topic.name is not None
        return {
            "configs": self._configs(topic.name),
            "partitions": [self._partition(str(topic.name), index) for index in range(len(topic.partitions))],
            "topicId": base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
        }

    def _configs(self, topic: str) -> dict[str, str | None]:
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
        answer = self._wire.ask(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse)
        return {one.name: one.value for one in answer.results[0].configs if one.config_source == DYNAMIC_TOPIC_CONFIG}

    def _partition(self, topic: str, index: int) -> dict[str, Any]:
        return {
            "earliest": self._offset(topic, index, EARLIEST),
            "lastStableOffset": self._offset(topic, index, LATEST, READ_COMMITTED),
            "latest": self._offset(topic, index, LATEST),
            "maxTimestampOffset": self._offset(topic, index, MAX_TIMESTAMP),
            "producers": self._producers(topic, index),
            "readCommitted": ranges(self.offsets_read(topic, index, "read_committed")),
            "readUncommitted": ranges(self.offsets_read(topic, index, "read_uncommitted")),
        }

    def _offset(self, topic: str, index: int, timestamp: int, isolation: int = READ_UNCOMMITTED) -> int:
        part = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=topic, partitions=[part])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        (found,) = self._wire.ask(request, 7, ListOffsetsResponse).topics[0].partitions
        assert found.error_code == 0, f"{topic}-{index}: {found}"
        return found.offset

    def _producers(self, topic: str, index: int) -> list[dict[str, int]]:
        request = DescribeProducersRequest(topics=[ProducersOf(name=topic, partition_indexes=[index])])
        (found,) = self._wire.ask(request, 0, DescribeProducersResponse).topics[0].partitions
        return [
            {
                "coordinatorEpoch": one.coordinator_epoch,
                "currentTransactionStartOffset": one.current_txn_start_offset,
                "epoch": one.producer_epoch,
                "lastSequence": one.last_sequence,
                "lastTimestamp": one.last_timestamp,
                "producerId": one.producer_id,
            }
            for one in sorted(found.active_producers, key=lambda one: one.producer_id)
        ]

    def records_read(self, topic: str, index: int, isolation: str) -> list[tuple[int, bytes | None]]:
        """Returns the offset and value of each record that a consumer receives from the start to the end of a
        partition."""
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "observer", "enable.auto.commit": False}
        settings |= {
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, index, self._offset(topic, index, EARLIEST))])
        found: list[tuple[int, bytes | None]] = []
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, f"{topic}-{index}: no end after {len(found)} records"
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    consumer.close()
                    return found
                assert error is None, f"{topic}-{index}: {error}"
                found.append((int(message.offset() or 0), message.value()))

    def offsets_read(self, topic: str, index: int, isolation: str) -> list[int]:
        return [offset for offset, _ in self.records_read(topic, index, isolation)]

    def groups(self) -> dict[str, Any]:
        while (answer := self._wire.ask(ListGroupsRequest(), 5, ListGroupsResponse)).error_code == STILL_LOADING:
            time.sleep(0.02)
        assert answer.error_code == 0, answer
        return {
            one.group_id: {
                "offsets": self.committed(one.group_id),
                "protocol": one.protocol_type,
                "state": one.group_state,
                "type": one.group_type.capitalize(),
            }
            for one in answer.groups
        }

    def committed(self, group: str) -> dict[str, list[Any]]:
        """Returns the committed offset, leader epoch and metadata by partition."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (found,) = self._wire.ask(request, 9, OffsetFetchResponse).groups
        return {
            f"{topic.name}-{one.partition_index}": [one.committed_offset, one.committed_leader_epoch, one.metadata]
            for topic in found.topics
            for one in topic.partitions
        }


def ranges(offsets: list[int]) -> list[list[int]]:
    """Returns [first, last] for each run of consecutive offsets."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found
