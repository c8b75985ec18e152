"""Tests requests with very many entries. The cost of a request grows linearly with the number of entries, and the
broker serves other clients in the meantime.

The tests count function calls, so they do not notice C code that compares all entries with one another. `make hostile`
also measures the cost of C code.
"""

import asyncio
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType

import pytest

from odradek.broker.api.context import AllowAll, RequestContext
from odradek.broker.api.long_requests import (
    BYTES_OF_AN_ENTRY,
    LONG_REQUEST_BYTES,
    MANY_PARTITIONS,
    MAX_ENTRIES,
    MAX_SLICED_ENTRIES,
    AnswerEntries,
    has_many_partitions,
)
from odradek.broker.api.served import SERVED
from odradek.broker.handlers.groups.group_offsets import offset_commit
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponseTopic
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from tests.support.in_process_broker import ConnectionClosed, InProcessBroker
from tests.support.long_requests import (
    KINDS,
    KNOWN_PARTITIONS,
    KNOWN_TOPIC,
    UNKNOWN,
    LongArray,
    long_arrays,
    long_request,
)

FEW, MANY = 100, 800
MAX_GROWTH = 1.5  # allowed growth of the calls per entry
LONG = 8_000  # A request with this many entries has at least LONG_REQUEST_BYTES.
IN_MANY_TURNS = (  # A single turn with MAX_ENTRIES entries in one of these arrays would take too long.
    "ALTER_CONFIGS-resources",
    "INCREMENTAL_ALTER_CONFIGS-resources",
    "CREATE_TOPICS-topics",
    "CREATE_PARTITIONS-topics",
    "ADD_PARTITIONS_TO_TXN-transactions",
    "FIND_COORDINATOR-coordinator_keys",
    "WRITE_SHARE_GROUP_STATE-topics.partitions",
    "DESCRIBE_SHARE_GROUP_OFFSETS-groups",
    "OFFSET_COMMIT-topics",
    "OFFSET_DELETE-topics",
    "TXN_OFFSET_COMMIT-topics",
)
ARRAYS = {key: list(arrays) for key, arrays in groupby(long_arrays(), lambda array: array.api_key)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    directory: Path = tmp_path_factory.mktemp("data")
    with InProcessBroker(directory, {}) as broker:
        topic = CreatableTopic(name=KNOWN_TOPIC, num_partitions=KNOWN_PARTITIONS, replication_factor=1)
        broker.ask(broker.connection("User:admin"), CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        yield broker


def calls(broker: InProcessBroker, request: Message, version: int) -> int:
    """Returns the number of functions that are called until the broker responds."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    connection = broker.connection("User:somebody")
    sys.setprofile(called)
    try:
        broker.ask(connection, request, version)
    except ConnectionClosed:
        pass  # The broker closes the connection after a malformed request.
    finally:
        sys.setprofile(None)
    return count


def calls_in_the_longest_turn(broker: InProcessBroker, request: Message, version: int) -> int:
    """Returns the largest number of function calls in one turn of the event loop. Calls in threads do not count."""
    turns = [0]

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "_run_once":
            turns.append(0)
        turns[-1] += event in ("call", "c_call")

    async def ask() -> None:
        frame = memoryview(bytearray(request_bytes(request, version, 1, "probe")))[4:]
        done = asyncio.Event()
        turns.append(0)
        sys.setprofile(called)
        reply = broker.requests.start(frame, broker.connection("User:somebody"))
        assert not isinstance(reply, list)
        reply.when_done(lambda _: done.set())
        await done.wait()
        reply.chunks()

    try:
        broker.loop.run_until_complete(ask())
    finally:
        sys.setprofile(None)
    return max(turns)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_MANY_TURNS)
def test_a_long_request_is_answered_in_many_turns_of_the_loop(name: str, broker: InProcessBroker) -> None:
    (array,) = [array for arrays in ARRAYS.values() for array in arrays if str(array) == name]
    # The first request imports modules, whose calls must not be counted.
    broker.ask(broker.connection("User:somebody"), long_request(array, 1, UNKNOWN), array.version)
    tries = (calls_in_the_longest_turn(broker, long_request(array, LONG, UNKNOWN), array.version) for _ in range(3))
    # During one of the attempts, one of the broker's timers may have fired.
    assert any(most < 6 * LONG for most in tries)


@pytest.mark.slow
@pytest.mark.parametrize("api_key", ARRAYS)
def test_cost_grows_with_the_number_of_entries_and_no_faster(api_key: ApiKey, broker: InProcessBroker) -> None:
    def cost(array: LongArray, kind: str, entries: int) -> int:
        return calls(broker, long_request(array, entries, kind), array.version)

    too_fast = []
    for array in ARRAYS[api_key]:
        for kind in KINDS:
            cost(array, kind, FEW)  # The first call imports modules.
            few, many = cost(array, kind, FEW), cost(array, kind, MANY)
            # One of the broker's timers may have fired and imported modules while the calls were counted.
            if many * FEW > MAX_GROWTH * few * MANY:
                many = min(cost(array, kind, MANY) for _ in range(3))
            if many * FEW > MAX_GROWTH * few * MANY:
                too_fast.append((str(array), kind, few, many))
    assert too_fast == []


def test_more_entries_than_a_turn_of_the_loop_may_look_at_are_refused(broker: InProcessBroker) -> None:
    partitions = [OffsetForLeaderPartition(partition=index) for index in range(MAX_ENTRIES)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])
    answer = broker.answer(broker.connection("User:somebody"), request, 4, OffsetForLeaderEpochResponse)
    (topic,) = answer.topics
    assert {partition.error_code for partition in topic.partitions} == {ErrorCode.INVALID_REQUEST.value}
    assert len(topic.partitions) == MAX_ENTRIES


def test_an_answer_has_no_more_entries_than_its_memory_allows() -> None:
    """Checks that the size of a response is limited, because a request can name a large group, or a broker with all its
    settings, many times."""
    entries = AnswerEntries()
    entries.add(MAX_SLICED_ENTRIES - 1)
    entries.add(1)
    with pytest.raises(KafkaError) as refused:
        entries.add(1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_data_that_clients_have_stored_count_with_their_size() -> None:
    entries = AnswerEntries()
    entries.add(1, BYTES_OF_AN_ENTRY * (MAX_SLICED_ENTRIES - 1))
    with pytest.raises(KafkaError):
        entries.add(0, BYTES_OF_AN_ENTRY)


def test_a_request_that_names_one_group_very_often_is_refused(broker: InProcessBroker) -> None:
    """Checks that a request of 10 KB that names a group very often is refused, because its response would have 60
    MB."""
    connection = broker.connection("User:somebody")
    broker.ask(connection, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="m" * 4_000)
        for index in range(KNOWN_PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name=KNOWN_TOPIC, partitions=partitions)]
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    broker.ask(connection, commit, 8)

    def answer(times: int) -> list[OffsetFetchResponseGroup]:
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)] * times
        return broker.answer(connection, OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse).groups

    of_one = KNOWN_PARTITIONS + 2 + 4_000 * KNOWN_PARTITIONS // BYTES_OF_AN_ENTRY
    assert {group.error_code for group in answer(10)} == {ErrorCode.NONE.value}
    refused = answer(MAX_SLICED_ENTRIES // of_one + 1)
    assert {group.error_code for group in refused} == {ErrorCode.INVALID_REQUEST.value}


def test_a_topic_that_is_deleted_while_its_offsets_are_being_committed_keeps_none(broker: InProcessBroker) -> None:
    connection = broker.connection("User:somebody")
    broker.ask(connection, FindCoordinatorRequest(key_type=0, coordinator_keys=["late"]), 4)
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    context = RequestContext(ApiKey.OFFSET_COMMIT, 8, 1, "a-client", 0, connection, AllowAll())

    async def deleted_meanwhile(unknown_topics: int) -> list[OffsetCommitResponseTopic] | None:
        """Commits offsets while a topic is being deleted. Returns the response, or None if the commit was faster than
        the deletion."""
        topic = CreatableTopic(name="doomed", num_partitions=1, replication_factor=1)
        await broker.ask_on_loop(connection, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        names = ("doomed", *(f"unknown-{number}" for number in range(unknown_topics)), KNOWN_TOPIC)
        topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names]
        commit = OffsetCommitRequest(group_id="late", generation_id_or_member_epoch=-1, topics=topics)
        committing = offset_commit(commit, context, broker.broker)
        assert isinstance(committing, Deferred)
        done = asyncio.Event()
        committing.when_done(lambda _: done.set())
        deletion = DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=10_000)
        await broker.ask_on_loop(connection, deletion, 5)
        is_answered = committing.is_done
        await done.wait()
        return None if is_answered else committing.outcome().topics

    answered, unknown_topics = None, MAX_ENTRIES
    while answered is None:
        answered = broker.loop.run_until_complete(deleted_meanwhile(unknown_topics))
        unknown_topics *= 2
    answers = {answer.name: answer.partitions[0].error_code for answer in answered}
    assert answers["doomed"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
    assert answers[KNOWN_TOPIC] == ErrorCode.NONE.value


def produce(partitions: int) -> ProduceRequest:
    """Returns a request with one record for each partition. Topics and partitions may repeat."""
    batch = bytes(build_batch([NewRecord(None, b"x", 1_000, ())]))
    data = [PartitionProduceData(index=index % KNOWN_PARTITIONS, records=batch) for index in range(partitions)]
    topics = [TopicProduceData(name=KNOWN_TOPIC, partition_data=data[start::2]) for start in (0, 1)]
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)


def answered(broker: InProcessBroker, request: ProduceRequest, version: int) -> list[PartitionProduceResponse]:
    answer = broker.answer(broker.connection("User:somebody"), request, version, ProduceResponse)
    return [each for topic in answer.responses for each in topic.partition_responses]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("partitions", [MANY_PARTITIONS - 2, MANY_PARTITIONS, MAX_ENTRIES - 2])
def test_each_batch_of_a_long_produce_is_written(partitions: int, version: int, broker: InProcessBroker) -> None:
    before = [each.base_offset for each in answered(broker, produce(KNOWN_PARTITIONS), version)]
    answers = answered(broker, produce(partitions), version)
    assert len(answers) == partitions
    assert {each.error_code for each in answers} == {ErrorCode.NONE.value}
    written = [0] * KNOWN_PARTITIONS
    for each in answers:
        written[each.index] += 1
    after = {each.index: each.base_offset for each in answered(broker, produce(KNOWN_PARTITIONS), version)}
    first = dict(zip((*range(0, KNOWN_PARTITIONS, 2), *range(1, KNOWN_PARTITIONS, 2)), before, strict=True))
    assert all(after[index] == first[index] + 1 + written[index] for index in range(KNOWN_PARTITIONS))


def test_a_produce_with_more_partitions_than_may_be_named_writes_nothing(broker: InProcessBroker) -> None:
    (before, *_) = answered(broker, produce(2), 9)
    answers = answered(broker, produce(MAX_ENTRIES + 2), 9)
    assert {each.error_code for each in answers} == {ErrorCode.INVALID_REQUEST.value}
    (after, *_) = answered(broker, produce(2), 9)
    assert after.base_offset == before.base_offset + 1


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("transactional_id", [None, "t" * 200])
def test_partitions_of_a_produce_are_counted_before_it_is_decoded(transactional_id: str | None, version: int) -> None:
    def many(request: ProduceRequest) -> bool:
        request.transactional_id = transactional_id
        frame = memoryview(bytes(encode(request, version)))
        cut_short = [has_many_partitions(frame[:end], 0, version) for end in range(0, len(frame) - 1, 997)]
        found = has_many_partitions(frame, 0, version)
        assert found or not any(cut_short)
        return found

    assert not many(ProduceRequest())
    assert not many(ProduceRequest(topic_data=[TopicProduceData(name="t" * 200)] * MANY_PARTITIONS))
    assert many(ProduceRequest(topic_data=[TopicProduceData(name="t")] * (MANY_PARTITIONS + 1)))
    assert not many(produce(MANY_PARTITIONS - 2))
    assert many(produce(MANY_PARTITIONS))
    no_records = [PartitionProduceData(index=index) for index in range(MANY_PARTITIONS)]
    assert not many(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=no_records[1:])]))
    assert many(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=no_records)]))


@pytest.mark.parametrize("api_key", [key for key in ARRAYS if SERVED[key].is_sliced])
def test_a_handler_in_slices_answers_more_entries(api_key: ApiKey, broker: InProcessBroker) -> None:
    array = ARRAYS[api_key][0]
    request = long_request(array, MAX_ENTRIES + 1, KINDS[0])
    assert len(request_bytes(request, array.version, 1, "probe")) > LONG_REQUEST_BYTES
    broker.ask(broker.connection("User:somebody"), request, array.version)
