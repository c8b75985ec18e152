"""Tests a consumer's reactions to the scripted responses of a partition leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from odradek.client import AuthorizationFailed, ClientError, Consumer, OffsetOutOfRange, TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.protocol.records import NewRecord, build_batch
from tests.unit.client.scripted_broker import Request, scripted

T = TopicPartition("t", 0)
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
LAST_VERSION_WITH_NAMES = 12
E = ErrorCode


def batch(*values: bytes, offset: int, epoch: int = 4, producer_id: int = -1) -> bytes:
    records = [NewRecord(None, value, 0) for value in values]
    return bytes(
        build_batch(
            records,
            base_offset=offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
    )


def data(records: bytes = b"", *, code: ErrorCode = E.NONE, aborted: tuple[tuple[int, int], ...] = ()) -> PartitionData:
    transactions = [AbortedTransaction(producer_id=each, first_offset=first) for each, first in aborted]
    return PartitionData(error_code=code.value, records=records, aborted_transactions=transactions)


@dataclass
class Leader:
    """The leader of a single partition. It answers each Fetch with the next of `answers`. After the last answer, it has
    no more records."""

    answers: list[PartitionData]
    newest_fetch: int = 17
    # leader epochs in successive Metadata responses; the last epoch repeats
    epochs: list[int] = field(default_factory=lambda: [4])
    topic_ids: list[bytes] = field(default_factory=lambda: [TOPIC_ID])
    start: int = 0
    epoch_end: tuple[int, int] = (-1, -1)  # epoch and end offset that OffsetForLeaderEpoch returns
    silences: int = 0  # number of Fetch requests that receive no response
    port: int = 0
    fetched: list[tuple[int, int]] = field(default_factory=list)  # (fetch offset, leader epoch) of each Fetch
    requested_apis: list[ApiKey] = field(default_factory=list)

    def answer(self, request: Request) -> bytes | None:
        key = ApiKey(request.api_key)
        self.requested_apis.append(key)
        match key:
            case ApiKey.API_VERSIONS:
                return request.answer(self._versions())
            case ApiKey.METADATA:
                return request.answer(self._metadata())
            case ApiKey.LIST_OFFSETS:
                timestamp = request.read(ListOffsetsRequest).topics[0].partitions[0].timestamp
                return request.answer(self._offsets(self.start if timestamp == -2 else 1_000))
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                epoch, end_offset = self.epoch_end
                end = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end_offset)
                topics = [OffsetForLeaderTopicResult(topic="t", partitions=[end])]
                return request.answer(OffsetForLeaderEpochResponse(topics=topics))
            case ApiKey.FETCH if self.silences:
                self.silences -= 1
                return b""
            case ApiKey.FETCH:
                return request.answer(self._fetch(request))
            case _:
                raise AssertionError(key)

    def _fetch(self, request: Request) -> FetchResponse:
        topic = request.read(FetchRequest).topics[0]
        requested_apis = topic.partitions[0]
        self.fetched.append((requested_apis.fetch_offset, requested_apis.current_leader_epoch))
        partition = self.answers.pop(0) if self.answers else data()
        answer = FetchableTopicResponse(partitions=[partition])
        if request.api_version <= LAST_VERSION_WITH_NAMES:
            answer.topic = topic.topic
        else:
            answer.topic_id = topic.topic_id
        return FetchResponse(responses=[answer])

    def _offsets(self, offset: int) -> ListOffsetsResponse:
        partition = ListOffsetsPartitionResponse(partition_index=0, offset=offset, leader_epoch=4)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])

    def _metadata(self) -> MetadataResponse:
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        topic_id = self.topic_ids.pop(0) if len(self.topic_ids) > 1 else self.topic_ids[0]
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=epoch)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])],
        )

    def _versions(self) -> ApiVersionsResponse:
        newest = {
            ApiKey.API_VERSIONS: 4,
            ApiKey.METADATA: 12,
            ApiKey.LIST_OFFSETS: 7,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
            ApiKey.FETCH: self.newest_fetch,
        }
        keys = [ApiVersion(api_key=key.value, min_version=0, max_version=version) for key, version in newest.items()]
        return ApiVersionsResponse(api_keys=keys)


@asynccontextmanager
async def reading(
    leader: Leader, *, reset: str = "earliest", isolation: str = "read_committed", fetch_max_wait_ms: int = 20
) -> AsyncIterator[Consumer]:
    async with scripted(leader.answer) as broker:
        leader.port = broker.port
        consumer = Consumer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            auto_offset_reset=reset,
            isolation_level=isolation,
            fetch_max_wait_ms=fetch_max_wait_ms,
            request_timeout_ms=200,
            retry_backoff_ms=1,
            retry_backoff_max_ms=2,
        )
        async with consumer:
            consumer.assign([T])
            yield consumer


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    return [(await consumer.getone()).value for _ in range(count)]


@pytest.mark.parametrize("newest_fetch", [LAST_VERSION_WITH_NAMES, 17])
async def test_each_fetch_begins_where_the_last_one_ended(newest_fetch: int) -> None:
    """Checks that a fetch continues after the last fetched record, in versions with topic names and in versions with
    topic ids."""
    leader = Leader([data(batch(b"a", b"b", offset=0)), data(batch(b"c", offset=2))], newest_fetch)
    async with reading(leader) as consumer:
        assert await values(consumer, 3) == [b"a", b"b", b"c"]
    assert leader.fetched[:2] == [(0, 4), (2, 4)]


async def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    leader = Leader([data(batch(b"a", offset=0))], topic_ids=[bytes(16)])
    async with reading(leader) as consumer:
        assert await values(consumer, 1) == [b"a"]


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.INCONSISTENT_TOPIC_ID,
        E.KAFKA_STORAGE_ERROR,
        E.REPLICA_NOT_AVAILABLE,
        E.OFFSET_NOT_AVAILABLE,
    ],
)
async def test_a_transient_fetch_error_is_retried_after_a_metadata_request(code: ErrorCode) -> None:
    leader = Leader([data(code=code), data(batch(b"a", offset=0))])
    async with reading(leader) as consumer:
        assert await values(consumer, 1) == [b"a"]
    first = leader.requested_apis.index(ApiKey.FETCH)
    assert leader.requested_apis[first : first + 3] == [ApiKey.FETCH, ApiKey.METADATA, ApiKey.FETCH]


async def test_a_topic_that_was_made_anew_is_read_by_its_new_id() -> None:
    leader = Leader([data(code=E.UNKNOWN_TOPIC_ID), data(batch(b"a", offset=0))], topic_ids=[TOPIC_ID, OTHER_ID])
    async with reading(leader) as consumer:
        assert await values(consumer, 1) == [b"a"]


async def test_a_fetch_that_is_never_answered_is_asked_again_on_another_connection() -> None:
    leader = Leader([data(batch(b"a", offset=0))], silences=1)
    async with reading(leader) as consumer:
        assert await values(consumer, 1) == [b"a"]
    assert leader.requested_apis.count(ApiKey.API_VERSIONS) == 3  # the main connection and two for Fetch


async def test_a_seek_does_not_wait_for_a_fetch_that_waits_for_records() -> None:
    """Checks that a seek takes effect immediately, although the leader is holding a Fetch and may answer it only after
    an hour."""
    leader = Leader([data(batch(b"a", offset=7))], silences=1)
    async with reading(leader, fetch_max_wait_ms=3_600_000) as consumer:
        while leader.silences:  # until the leader has received the Fetch
            assert await consumer.getmany(timeout_ms=20) == {}
        consumer.seek(T, 7)
        assert (await consumer.getone()).offset == 7


async def test_an_offset_out_of_range_is_reset_by_the_policy() -> None:
    leader = Leader([data(code=E.OFFSET_OUT_OF_RANGE), data(batch(b"a", offset=50))], start=50)
    async with reading(leader) as consumer:
        consumer.seek(T, 7)
        assert (await consumer.getone()).offset == 50
    assert [offset for offset, _ in leader.fetched[:2]] == [7, 50]


async def test_without_a_reset_policy_the_application_gets_offset_out_of_range() -> None:
    leader = Leader([data(code=E.OFFSET_OUT_OF_RANGE), data(batch(b"a", offset=50))])
    async with reading(leader, reset="none") as consumer:
        consumer.seek(T, 7)
        with pytest.raises(OffsetOutOfRange):
            await consumer.getone()
        consumer.seek(T, 50)
        assert (await consumer.getone()).offset == 50


@pytest.mark.parametrize(
    ("code", "error"),
    [(E.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed), (E.UNKNOWN_SERVER_ERROR, ClientError)],
)
async def test_a_permanent_fetch_error_is_raised_once_and_retried_by_the_next_call(
    code: ErrorCode, error: type[ClientError]
) -> None:
    leader = Leader([data(code=code), data(batch(b"a", offset=0))])
    async with reading(leader) as consumer:
        with pytest.raises(error) as raised:
            await consumer.getone()
        assert raised.value.code is code
        assert await values(consumer, 1) == [b"a"]


async def test_damaged_records_raise_an_error_until_the_application_seeks_past_them() -> None:
    damaged = bytearray(batch(b"a", offset=0) + batch(b"b", offset=1))
    damaged[-2] ^= 1
    leader = Leader([data(bytes(damaged)), data(batch(b"c", offset=2))])
    async with reading(leader) as consumer:
        assert await values(consumer, 1) == [b"a"]
        for _ in range(2):
            with pytest.raises(ClientError) as raised:
                await consumer.getone()
            assert raised.value.code is E.CORRUPT_MESSAGE
        assert await consumer.position(T) == 1
        consumer.seek(T, 2)
        assert await values(consumer, 1) == [b"c"]


async def test_what_came_before_damaged_records_is_given_first() -> None:
    damaged = bytearray(batch(b"a", offset=0) + batch(b"b", offset=1))
    damaged[-2] ^= 1
    async with reading(Leader([data(bytes(damaged))])) as consumer:
        assert [record.value for record in (await consumer.getmany())[T]] == [b"a"]
        with pytest.raises(ClientError):
            await consumer.getmany()


async def test_a_batch_larger_than_a_fetch_raises_an_error() -> None:
    leader = Leader([data(batch(b"a" * 100, offset=0)[:-1])])
    async with reading(leader) as consumer:
        with pytest.raises(ClientError, match="larger than a Fetch allows") as raised:
            await consumer.getone()
    assert raised.value.code is E.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(("isolation", "expected"), [("read_committed", [b"b"]), ("read_uncommitted", [b"a", b"b"])])
async def test_aborted_records_are_left_out_of_what_is_committed(isolation: str, expected: list[bytes]) -> None:
    records = batch(b"a", offset=0, producer_id=7) + batch(b"b", offset=1)
    leader = Leader([data(records, aborted=((7, 0),))])
    async with reading(leader, isolation=isolation) as consumer:
        assert await values(consumer, len(expected)) == expected


# KIP-320: the leader changes after two records have been read, and the leader epoch changes from 4 to 5.


def after_a_change(end: tuple[int, int], *following: PartitionData) -> Leader:
    answers = [data(batch(b"a", b"b", offset=0)), data(code=E.FENCED_LEADER_EPOCH), *following]
    return Leader(answers, epochs=[4, 5], epoch_end=end)


async def test_a_position_that_the_new_leader_has_is_kept() -> None:
    leader = after_a_change((4, 2), data(batch(b"c", offset=2, epoch=5)))
    async with reading(leader) as consumer:
        assert await values(consumer, 3) == [b"a", b"b", b"c"]
    assert ApiKey.OFFSET_FOR_LEADER_EPOCH in leader.requested_apis
    assert leader.fetched[:3] == [(0, 4), (2, 4), (2, 5)]


async def test_a_position_behind_what_the_new_leader_has_goes_back_to_where_the_logs_part() -> None:
    leader = after_a_change((4, 1), data(batch(b"other b", offset=1, epoch=5)))
    async with reading(leader) as consumer:
        assert await values(consumer, 3) == [b"a", b"b", b"other b"]
    assert leader.fetched[:3] == [(0, 4), (2, 4), (1, 5)]


async def test_without_a_policy_the_application_hears_that_records_which_it_read_are_gone() -> None:
    leader = after_a_change((4, 1))
    async with reading(leader, reset="none") as consumer:
        consumer.seek(T, 0)
        assert await values(consumer, 2) == [b"a", b"b"]
        with pytest.raises(OffsetOutOfRange):
            await consumer.getone()


async def test_a_position_whose_epoch_the_new_leader_does_not_know_is_reset_once() -> None:
    """Checks that the position is reset once. The new position has no epoch, as in the Java client, and therefore needs
    no further validation."""
    leader = after_a_change((-1, -1), data(batch(b"c", offset=0, epoch=5)))
    async with reading(leader) as consumer:
        assert await values(consumer, 3) == [b"a", b"b", b"c"]
    assert leader.requested_apis.count(ApiKey.OFFSET_FOR_LEADER_EPOCH) == 1
    assert leader.fetched[:3] == [(0, 4), (2, 4), (0, 5)]
