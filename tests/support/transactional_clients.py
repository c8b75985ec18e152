"""Transactional producers and consumers for tests. They use a broker that has group and transaction coordinators but no
socket. A test needs one line for each request.

Requests and responses are encoded and decoded as on the wire. `TV1` and `TV2` are the two client protocols: TV1 clients
add partitions themselves (Produce v11, EndTxn v4); with TV2 the broker adds them (Produce v12, EndTxn v5).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from odradek.broker.api.context import ConnectionInfo, RequestContext
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.control_records import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.protocol.records import batches, records_of
from odradek.protocol.struct import ZERO_UUID, Message
from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE, PartitionCodes, TopicPartition
from tests.support.batches import batch_by
from tests.support.broker_scene import NOW_MS, answer_of
from tests.support.fake_disk import FakeDisk
from tests.support.transaction_broker import TransactionBroker
from tests.support.turns import answered

Pair = tuple[int, int]
ID = "pay"
GROUP = "billing"
TV1, TV2 = 11, 12  # versions of Produce
TIMEOUT_MS = 60_000
NO_PAIR = (-1, -1)


def batch_of(
    pair: Pair, sequence: int = 0, *values: bytes, transactional: bool = True, timestamp_ms: int = NOW_MS
) -> bytearray:
    return batch_by(pair, sequence, *(values or (b"v",)), at_ms=timestamp_ms, transactional=transactional)


class Clients(TransactionBroker):
    """A broker with a two-partition topic `t` and one partition for each internal topic."""

    def __init__(self, disk: FakeDisk | None = None, *, incarnation: int = 0, **settings: Any) -> None:
        super().__init__(disk, **settings)
        self._settings = settings
        self._incarnation = incarnation
        self.leader_epoch = incarnation
        self.topic("t", 2)  # This topic is created first, because loading discards the offsets of unknown topics.
        self.topic(GROUP_OFFSETS, cleanup_policy=frozenset({"compact"}))
        self.topic(TRANSACTION_STATE, cleanup_policy=frozenset({"compact"}))

    def start_coordinator(self) -> None:
        super().start_coordinator()
        self.coordinator = self.transactions

    def restarted(self, *, killed: bool) -> Clients:
        """Returns the next process on the same disk, with the currently finalized transaction version."""
        settings = {**self._settings, "transaction_version": self.features[TRANSACTION_VERSION]}
        if killed:
            return Clients(self.disk.after_kill(), incarnation=self._incarnation + 1, **settings)
        self.transactions.stop()
        self.groups.stop()
        self.log_directory.close()
        return Clients(self.disk, incarnation=self._incarnation + 1, **settings)

    def ask(self, request: Message, version: int) -> Any:
        sent = decode(type(request), version, bytearray(encode(request, version)))
        api_key = ApiKey(request.API_KEY)
        connection = ConnectionInfo(1, "127.0.0.1", 50_000)
        context = RequestContext(api_key, version, 1, "a-client", self.clock.now_ms(), connection, self.authorizer)
        answer = handler_of(api_key)(sent, context, self.broker)
        return answered(answer) if isinstance(answer, Coroutine) else answer

    # Producers.

    def init(self, pair: Pair = NO_PAIR, *, transactional_id: str = ID) -> Pair:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=pair[0],
            producer_epoch=pair[1],
        )
        answer = self.answer(request, 5, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return answer.producer_id, answer.producer_epoch

    def init6(
        self, pair: Pair = NO_PAIR, *, two_phase: bool = True, keep: bool = False, transactional_id: str = ID
    ) -> tuple[Pair, Pair]:
        """Sends InitProducerId v6. Returns the producer id and epoch to continue with, and those of the kept
        transaction."""
        answer = self.answer(
            self.init6_request(pair, two_phase=two_phase, keep=keep, transactional_id=transactional_id),
            6,
            InitProducerIdResponse,
        )
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        return (answer.producer_id, answer.producer_epoch), ongoing

    def init6_request(
        self, pair: Pair = NO_PAIR, *, two_phase: bool = True, keep: bool = False, transactional_id: str = ID
    ) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=0 if two_phase else TIMEOUT_MS,
            producer_id=pair[0],
            producer_epoch=pair[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )

    def add(self, pair: Pair, *indexes: int, topic: str = "t", transactional_id: str = ID) -> ErrorCode:
        """Sends AddPartitionsToTxn v3, as producers do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=pair[0],
            v3_and_below_producer_epoch=pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes or (0,)))],
        )
        answer = self.answer_or_refusal(request, 3, AddPartitionsToTxnResponse)
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def add_offsets(self, pair: Pair, *, group: str = GROUP, transactional_id: str = ID) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], group_id=group
        )
        return ErrorCode(self.answer_or_refusal(request, 3, AddOffsetsToTxnResponse).error_code)

    def send(
        self,
        *batches_by_partition: bytes | bytearray | None,
        version: int = TV2,
        topic: str = "t",
        transactional_id: str | None = ID,
    ) -> Any:
        """Sends a Produce with a batch for each partition, starting at partition 0. A value of None skips its
        partition. Returns a Deferred for the response."""
        data = [
            PartitionProduceData(index=index, records=batch)
            for index, batch in enumerate(batches_by_partition)
            if batch is not None
        ]
        named = TopicProduceData(name=topic, partition_data=data)
        if version >= 13:
            named = TopicProduceData(topic_id=self.image.topics[topic].topic_id, partition_data=data)
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[named])
        return self.ask(request, version)

    def produce_answers(self, reply: Any, version: int = TV2) -> list[PartitionProduceResponse]:
        self.settle()
        response = decode(ProduceResponse, version, encode(answer_of(reply), version))
        return response.responses[0].partition_responses

    def produce(
        self,
        pair: Pair,
        sequence: int = 0,
        *values: bytes,
        version: int = TV2,
        index: int = 0,
        topic: str = "t",
        transactional_id: str = ID,
        transactional: bool = True,
    ) -> ErrorCode:
        """Produces one batch and returns its error code."""
        data: list[bytearray | None] = [None] * index
        data.append(batch_of(pair, sequence, *values, transactional=transactional))
        reply = self.send(*data, version=version, topic=topic, transactional_id=transactional_id)
        return ErrorCode(self.produce_answers(reply, version)[0].error_code)

    def end(self, pair: Pair, *, commit: bool, version: int = 5, transactional_id: str = ID) -> Pair:
        """Sends EndTxn. Returns the producer id and epoch to continue with. Raises KafkaError if the request is
        refused."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )
        answer = self.answer(request, version, EndTxnResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return (answer.producer_id, answer.producer_epoch) if version >= 5 else pair

    def commit(self, pair: Pair, *, version: int = 5, transactional_id: str = ID) -> Pair:
        return self.end(pair, commit=True, version=version, transactional_id=transactional_id)

    def abort(self, pair: Pair, *, version: int = 5, transactional_id: str = ID) -> Pair:
        return self.end(pair, commit=False, version=version, transactional_id=transactional_id)

    def write_marker(
        self,
        pair: Pair,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        version: int = 1,
        transaction_version: int = 0,
        topic: str = "t",
        index: int = 0,
    ) -> ErrorCode:
        """Sends WriteTxnMarkers, as a coordinator on another broker or a repair tool does."""
        marker = WritableTxnMarker(
            producer_id=pair[0],
            producer_epoch=pair[1],
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self.answer(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    # Groups.

    def commit_offset_in_transaction(
        self,
        pair: Pair,
        offset: int,
        *,
        version: int = 5,
        group: str = GROUP,
        topic: str = "t",
        index: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        transactional_id: str = ID,
    ) -> ErrorCode:
        reply = self.begin_offset_in_transaction(
            pair,
            offset,
            version=version,
            group=group,
            topic=topic,
            index=index,
            member_id=member_id,
            generation=generation,
            instance=instance,
            metadata=metadata,
            transactional_id=transactional_id,
        )
        return self.offset_commit_code(reply, version)

    def begin_offset_in_transaction(
        self,
        pair: Pair,
        offset: int,
        *,
        version: int = 5,
        group: str = GROUP,
        topic: str = "t",
        index: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        transactional_id: str = ID,
    ) -> Any:
        """Sends a TxnOffsetCommit. `offset_commit_code` turns the result into the error code."""
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=pair[0],
            producer_epoch=pair[1],
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.image.topics[topic].topic_id if topic in self.image.topics else ZERO_UUID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        return self.ask(request, version)

    def offset_commit_code(self, reply: Any, version: int = 5) -> ErrorCode:
        self.settle()
        answer = decode(TxnOffsetCommitResponse, version, encode(answer_of(reply), version))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def commit_offset(self, offset: int, *, group: str = GROUP, topic: str = "t", index: int = 0) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)],
                )
            ],
        )
        answer = self.answer(request, 9, OffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def committed_offset(
        self, *, group: str = GROUP, topic: str = "t", index: int = 0, require_stable: bool = False
    ) -> int | ErrorCode:
        """Returns the committed offset, -1 if there is none, or the partition's error."""
        request_group = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
        )
        request = OffsetFetchRequest(groups=[request_group], require_stable=require_stable)
        answer = self.answer(request, 9, OffsetFetchResponse).groups[0].topics[0].partitions[0]
        return ErrorCode(answer.error_code) if answer.error_code else answer.committed_offset

    # Readers.

    def fetch(
        self, offset: int = 0, *, committed: bool, version: int = 12, topic: str = "t", index: int = 0
    ) -> PartitionData:
        """Fetches from one partition without waiting and returns that partition's part of the response."""
        fetch_topic = FetchTopic(
            partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )
        if version < 13:
            fetch_topic.topic = topic
        else:
            fetch_topic.topic_id = self.image.topics[topic].topic_id
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, max_bytes=1 << 30, isolation_level=int(committed), topics=[fetch_topic]
        )
        answer = self.answer(request, version, FetchResponse)
        return answer.responses[0].partitions[0]

    def read(self, *, committed: bool, version: int = 12, topic: str = "t", index: int = 0) -> list[bytes]:
        """Returns the values that a consumer delivers after it has processed batches, markers and aborted
        transactions."""
        data = self.fetch(committed=committed, version=version, topic=topic, index=index)
        assert data.error_code == 0
        return consumed(data)

    def read_from(self, offset: int, *, committed: bool) -> list[bytes]:
        """Like `read`, but starts at `offset`. Leaves out earlier records of the first batch."""
        return consumed(self.fetch(offset, committed=committed), offset)

    def latest_offset(self, *, committed: bool, version: int = 11, topic: str = "t", index: int = 0) -> int:
        return self.offset_at(-1, committed=committed, version=version, topic=topic, index=index)[0]

    def offset_at(
        self, timestamp: int, *, committed: bool, version: int = 11, topic: str = "t", index: int = 0
    ) -> tuple[int, int]:
        """Sends ListOffsets. Returns the offset and the timestamp that it finds."""
        partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
        )
        answer = self.answer(request, version, ListOffsetsResponse).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.offset, answer.timestamp

    def producers(self, *, topic: str = "t", index: int = 0) -> dict[int, ProducerState]:
        """Sends DescribeProducers. Returns the producers by producer id."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
        answer = self.answer(request, 0, DescribeProducersResponse).topics[0].partitions[0]
        assert answer.error_code == 0
        return {state.producer_id: state for state in answer.active_producers}


class Answering:
    """A coordinator with scripted error codes. It answers immediately or when the test allows it."""

    def __init__(self, *codes: ErrorCode, at_once: bool = True) -> None:
        """Sets the sequence of error codes. The last code is repeated for all later requests."""
        self._codes = list(codes)
        self._at_once = at_once
        self.requests: list[tuple[str, int, int, frozenset[TopicPartition], bool, int]] = []
        self.held: list[Callable[[], None]] = []

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
        requested_version: int,
    ) -> PartitionCodes | Deferred[PartitionCodes]:
        requested = frozenset(partitions)
        self.requests.append((transactional_id, producer_id, producer_epoch, requested, verify_only, requested_version))
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        codes = dict.fromkeys(requested, code)
        if self._at_once:
            return codes
        answer: Deferred[PartitionCodes] = Deferred()
        self.held.append(lambda: answer.resolve(codes))
        return answer


def consumed(data: PartitionData, from_offset: int = 0) -> list[bytes]:
    """Returns the values that a consumer delivers from a Fetch response. The list of aborted transactions is null if
    the fetch was read_uncommitted."""
    chunks = data.records if isinstance(data.records, list) else [data.records or b""]
    records = b"".join(bytes(chunk) for chunk in chunks)
    begins = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    aborted: set[int] = set()
    values: list[bytes] = []
    for position, header in batches(records):
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        if header.is_control:
            marker = read_marker(records, position, header)
            if marker is not None and not marker.is_commit:
                aborted.discard(marker.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value or b"" for record in records_of(records, position) if record.offset >= from_offset]
    return values
