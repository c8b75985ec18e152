"""Tests the reader of `_schemas` when the topic cannot be read."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.registry.topic import SchemaTopic
from odradek.broker.runtime.starting import CannotStart
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData


class DamagedTopic:
    """A Kafka client whose fetches return bytes that are not a record batch."""

    async def ask(self, request: object, response_class: object, *, max_version: int) -> FetchResponse:
        damaged = PartitionData(partition_index=0, high_watermark=1, records=b"\xff" * 100)
        return FetchResponse(responses=[FetchableTopicResponse(topic="_schemas", partitions=[damaged])])


async def test_a_topic_that_cannot_be_read_stops_the_start_by_name() -> None:
    one = SimpleNamespace(partitions=[0])
    partition = SimpleNamespace(log=SimpleNamespace(log_end_offset=1))
    broker: Any = SimpleNamespace(
        metadata=SimpleNamespace(image=SimpleNamespace(topics={"_schemas": one})),
        partitions=SimpleNamespace(get=lambda topic, index: partition),
    )
    client: Any = DamagedTopic()
    topic = SchemaTopic(broker, client, lambda record: None)
    with pytest.raises(CannotStart, match="cannot read _schemas at offset 0"):
        await topic.open()
