"""Creates the topics that the rows need, with minimal requests."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from tests.support.wire import Wire

CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
LIST_OFFSETS_VERSION = 6
LATEST = -1
METADATA_VERSION = 12
LEADER_TIMEOUT_S = 120.0

_numbers = count(1)


@contextmanager
def topic(bootstrap: str, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields a new topic whose partitions have leaders and deletes it afterwards."""
    name = f"bench-{next(_numbers)}"
    with Wire(bootstrap) as wire:
        create(wire, [name], partitions, configs or {})
        wait_until_led(wire, [name])
    try:
        yield name
    finally:
        with Wire(bootstrap) as wire:
            wire.ask(
                DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000), DELETE_TOPICS_VERSION
            )


def create(wire: Wire, names: Sequence[str], partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    topic_configs = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=topic_configs)
            for name in names
        ],
        timeout_ms=60_000,
    )
    answer = wire.ask(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
    refused = [(one.name, one.error_code, one.error_message) for one in answer.topics if one.error_code]
    if refused:
        raise RuntimeError(f"topics were refused, the first one: {refused[0]}")


def wait_until_led(wire: Wire, names: Sequence[str]) -> None:
    """Waits until Metadata contains a leader for every partition and ListOffsets succeeds for every partition, because
    a new leader may not yet know its role."""
    _repeat(names, lambda waiting: _unnamed(wire, waiting))
    metadata = wire.ask(_metadata_request(names), METADATA_VERSION, MetadataResponse)
    partitions = {one.name or "": len(one.partitions) for one in metadata.topics}
    _repeat(names, lambda waiting: _unanswered(wire, {name: partitions[name] for name in waiting}))


def _repeat(names: Sequence[str], still_waiting: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Repeats the request at growing intervals until no topics are waiting. More frequent requests would delay the
    broker on a two-core machine."""
    begun = time.monotonic()
    while names := still_waiting(names):
        waited_s = time.monotonic() - begun
        if waited_s > LEADER_TIMEOUT_S:
            raise RuntimeError(f"{len(names)} topics have no leaders after {LEADER_TIMEOUT_S:g} s")
        time.sleep(max(0.002, 0.03 * waited_s))


def _unnamed(wire: Wire, names: Sequence[str]) -> Sequence[str]:
    """Returns the topics for which Metadata lacks a leader."""
    answer = wire.ask(_metadata_request(names), METADATA_VERSION, MetadataResponse)
    return [
        one.name or ""
        for one in answer.topics
        if one.error_code or not one.partitions or any(p.error_code or p.leader_id < 0 for p in one.partitions)
    ]


def _unanswered(wire: Wire, partitions: Mapping[str, int]) -> Sequence[str]:
    """Returns the topics with partitions for which ListOffsets fails."""
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(count)],
        )
        for name, count in partitions.items()
    ]
    answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=topics), LIST_OFFSETS_VERSION, ListOffsetsResponse)
    return [topic.name for topic in answer.topics if any(one.error_code for one in topic.partitions)]


def _metadata_request(names: Sequence[str]) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
