"""A request may hold very many entries. What that costs grows with their number and no faster, and others are served.

C code that compares each entry with each other makes no calls: such costs show in `make hostile`.
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType

import pytest

from odradek.broker.api.long_requests import LONG_REQUEST_BYTES, MAX_ENTRIES
from odradek.broker.api.served import SERVED
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from odradek.protocol.struct import Message
from tests.support.asked_broker import AskedBroker, Closed
from tests.support.long_requests import KINDS, KNOWN_PARTITIONS, KNOWN_TOPIC, LongArray, long_arrays, long_request

FEW, MANY = 100, 800
MOST_GROWTH = 1.5  # of the calls for each entry
ARRAYS = {key: list(arrays) for key, arrays in groupby(long_arrays(), lambda array: array.api_key)}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedBroker]:
    directory: Path = tmp_path_factory.mktemp("data")
    with AskedBroker(directory, {}) as asked:
        topic = CreatableTopic(name=KNOWN_TOPIC, num_partitions=KNOWN_PARTITIONS, replication_factor=1)
        asked.ask(asked.connection("User:admin"), CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        yield asked


def calls(asked: AskedBroker, request: Message, version: int) -> int:
    """How many functions are called until it is answered."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    connection = asked.connection("User:somebody")
    sys.setprofile(called)
    try:
        asked.ask(connection, request, version)
    except Closed:
        pass  # it hung up, as it does where a request means nothing
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("api_key", ARRAYS)
def test_cost_grows_with_the_number_of_entries_and_no_faster(api_key: ApiKey, asked: AskedBroker) -> None:
    def cost(array: LongArray, kind: str, entries: int) -> int:
        return calls(asked, long_request(array, entries, kind), array.version)

    too_fast = []
    for array in ARRAYS[api_key]:
        for kind in KINDS:
            cost(array, kind, FEW)  # imports what it needs
            few, many = cost(array, kind, FEW), cost(array, kind, MANY)
            if many * FEW > MOST_GROWTH * few * MANY:
                too_fast.append((str(array), kind, few, many))
    assert too_fast == []


def test_more_entries_than_a_turn_of_the_loop_may_look_at_are_refused(asked: AskedBroker) -> None:
    partitions = [OffsetForLeaderPartition(partition=index) for index in range(MAX_ENTRIES)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])
    answer = asked.answer(asked.connection("User:somebody"), request, 4, OffsetForLeaderEpochResponse)
    (topic,) = answer.topics
    assert {partition.error_code for partition in topic.partitions} == {ErrorCode.INVALID_REQUEST.value}
    assert len(topic.partitions) == MAX_ENTRIES


@pytest.mark.parametrize("api_key", [key for key in ARRAYS if SERVED[key].is_sliced])
def test_a_handler_in_slices_answers_more_entries(api_key: ApiKey, asked: AskedBroker) -> None:
    array = ARRAYS[api_key][0]
    request = long_request(array, MAX_ENTRIES + 1, KINDS[0])
    assert len(request_bytes(request, array.version, 1, "probe")) > LONG_REQUEST_BYTES
    asked.ask(asked.connection("User:somebody"), request, array.version)
