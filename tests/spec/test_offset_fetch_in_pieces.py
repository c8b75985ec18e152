"""Tests that the response to an OffsetFetch for many topics is built in pieces, and that the client receives a single
response."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.handlers.groups.offset_fetch import TOPICS_AT_ONCE, in_version, merge_responses
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from tests.support.in_process_broker import InProcessBroker

NAMES = [f"t{number}" for number in range(5 * TOPICS_AT_ONCE // 2)]
GROUPS = ("g", "h")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    directory: Path = tmp_path_factory.mktemp("data")
    with InProcessBroker(directory, {"offsets.topic.num.partitions": "1"}) as in_process:
        found = False
        while not found:  # retried while the coordinator's topic is being created and loaded
            request = FindCoordinatorRequest(key="g")
            in_process.ask(in_process.connection("User:a"), request, 1)
            probe = OffsetFetchRequest(group_id="g", topics=[])
            found = not in_process.answer(in_process.connection("User:a"), probe, 7, OffsetFetchResponse).error_code
            in_process.go_on()
        yield in_process


def test_each_topic_is_answered_in_its_place(broker: InProcessBroker) -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in NAMES]
    )
    answer = broker.answer(broker.connection("User:a"), request, 7, OffsetFetchResponse)
    assert [topic.name for topic in answer.topics] == NAMES
    assert {partition.committed_offset for topic in answer.topics for partition in topic.partitions} == {-1}


def test_each_group_has_its_own_topics(broker: InProcessBroker) -> None:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in GROUPS])
    answer = broker.answer(broker.connection("User:a"), request, 8, OffsetFetchResponse)
    assert [(group.group_id, [topic.name for topic in group.topics]) for group in answer.groups] == [
        (name, NAMES) for name in GROUPS
    ]


@pytest.mark.parametrize("version", [7, 8])
def test_an_error_of_one_piece_becomes_the_error_of_the_group(version: int) -> None:
    def piece(code: ErrorCode) -> OffsetFetchResponse:
        topics = [] if code is not ErrorCode.NONE else [OffsetFetchResponseTopics(name="t")]
        return in_version(OffsetFetchResponseGroup(group_id="g", error_code=code.value, topics=topics), version)

    answer = merge_responses(
        [piece(ErrorCode.NONE), piece(ErrorCode.STALE_MEMBER_EPOCH), piece(ErrorCode.NONE)], [0, 0, 0]
    )
    group = answer.groups[0] if version == 8 else answer
    assert (group.error_code, group.topics) == (ErrorCode.STALE_MEMBER_EPOCH.value, [])
