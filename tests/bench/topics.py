"""Topics for the rows, by the plainest requests."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.create_topics_response import CreateTopicsResponse
from protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.metadata_response import MetadataResponse
from tests.support.wire import Wire

CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
METADATA_VERSION = 12
LEADER_TIMEOUT_S = 60.0

_numbers = count(1)


@contextmanager
def topic(bootstrap: str, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
    """A new topic, for as long as it is measured; its partitions have leaders."""
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
    asked = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=asked) for name in names
        ],
        timeout_ms=60_000,
    )
    answer = wire.ask(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
    refused = [(one.name, one.error_code, one.error_message) for one in answer.topics if one.error_code]
    if refused:
        raise RuntimeError(f"topics were refused, the first one: {refused[0]}")


def wait_until_led(wire: Wire, names: Sequence[str]) -> None:
    """Until Metadata names a leader for every partition of every topic."""
    deadline = time.monotonic() + LEADER_TIMEOUT_S
    waiting = list(names)
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} topics have no leaders after {LEADER_TIMEOUT_S:g} s")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in waiting])
        answer = wire.ask(request, METADATA_VERSION, MetadataResponse)
        waiting = [
            one.name or ""
            for one in answer.topics
            if one.error_code or not one.partitions or any(p.error_code or p.leader_id < 0 for p in one.partitions)
        ]
        if waiting:
            time.sleep(0.002)
