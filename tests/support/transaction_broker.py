"""A broker without a socket: partitions, and the group and transaction coordinators that the transaction handlers use.

The test controls disk, clock, timers, loop and threads. Logs are loaded immediately, so nothing waits for a loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from odradek.broker.api.context import Audit, ConnectionInfo, RequestContext
from odradek.broker.api.error_replies import error_reply
from odradek.broker.api.error_translations import translate
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.coordinators.cluster_view import ImageView
from odradek.broker.coordinators.group_coordinator import CoordinatorSettings, GroupCoordinator, OffsetsTopic
from odradek.broker.coordinators.partition_sync import LocalPartitionSync
from odradek.broker.coordinators.producer_ids import OnProducerId, ProducerIds
from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from odradek.broker.coordinators.transaction_markers import (
    LocalMarkerWriter,
    MarkerWriter,
    OnWritten,
    ShareGroupMarkers,
    TxnMarker,
)
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.handlers.transactions.administration import (
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
from odradek.broker.handlers.transactions.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
)
from odradek.broker.metadata.image import TopicImage
from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.partitions.partition import CoordinatorLog
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.shares.core.state import TransactionEnd
from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.acls import ANY_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.compression import Compression
from odradek.protocol.control_records import Marker, read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.records import batches
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.support.batches import batch_by
from tests.support.broker_scene import NODE_ID, BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk
from tests.support.turns import answered, run

M = TypeVar("M", bound=Message)
HANDLERS: dict[int, Any] = {
    ApiKey.INIT_PRODUCER_ID.value: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN.value: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN.value: add_offsets_to_txn,
    ApiKey.END_TXN.value: end_txn,
    ApiKey.WRITE_TXN_MARKERS.value: write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS.value: describe_transactions,
    ApiKey.LIST_TRANSACTIONS.value: list_transactions,
}


class Denying:
    """An authorizer that allows everything that the test does not deny."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, ResourceType, str]] = set()

    def allows(
        self,
        context: RequestContext,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        audit: Audit = Audit.CHECK,
    ) -> bool:
        return (operation, resource, name) not in self.denied

    def passes(self, connection: ConnectionInfo, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) not in self.denied

    def allows_on_any(self, context: RequestContext, operation: Operation, resource: ResourceType) -> bool:
        return (operation, resource, ANY_NAME) not in self.denied


class Blocks:
    """Allocates blocks of producer ids that start at 1000, 2000 and so on. If `failure` is set, the allocation
    fails."""

    def __init__(self) -> None:
        self.failure: KafkaError | None = None
        self.held: list[Callable[[], None]] | None = None  # If this is a list, responses are held in it.
        self._next = count(1000, 1000)

    def begin_at(self, producer_id: int) -> None:
        self._next = count(producer_id, 1000)

    def allocate_producer_ids(self, count: int, then: OnProducerId) -> None:
        answer = next(self._next) if self.failure is None else self.failure
        if self.held is None:
            then(answer)
        else:
            self.held.append(lambda: then(answer))


class EagerLog(CoordinatorLog):
    """A log that is read immediately, without a thread."""

    async def read(self) -> AsyncIterator[bytes]:
        log = self._partition.log
        for portion in log.reader.scan(log.log_start_offset, log.log_end_offset):
            yield portion


class MarkersThatMeet:
    """A marker writer. The leaders of some partitions refuse their marker with an error code; the other leaders write
    their marker."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer
        self.refusals: dict[tuple[str, int], ErrorCode] = {}
        self.bug: Exception | None = None
        self.sent: list[TxnMarker] = []
        self.held: list[Callable[[], None]] | None = None  # If this is a list, responses are held in it.
        # by partition: the function that writes a delayed marker
        self.pending: dict[tuple[str, int], Callable[[], None] | None] = {}

    def release(self, *partitions: tuple[str, int]) -> None:
        """Writes delayed markers."""
        for each in partitions:
            write = self.pending.pop(each)
            assert write is not None, "a marker was sent there"
            write()

    def write(self, markers: Iterable[TxnMarker], then: OnWritten) -> None:
        if self.bug is not None:
            raise self.bug
        (marker,) = markers
        self.sent.append(marker)
        refused = {each: self.refusals[each] for each in marker.partitions if each in self.refusals}
        rest = [each for each in marker.partitions if each not in refused and each not in self.pending]
        for each in self.pending:
            if each in marker.partitions:
                alone = replace(marker, partitions=[each])
                self.pending[each] = partial(self._writer.write, [alone], then)

        def answered(results: Any) -> None:
            answer = [{**results[0], **refused}]
            if self.held is None:
                then(answer)
            else:
                self.held.append(lambda: then(answer))

        allowed = TxnMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.is_commit,
            marker.coordinator_epoch,
            marker.transaction_version,
            rest,
            marker.must_sync,
        )
        self._writer.write([allowed], answered)


class NoShareGroups:
    def require_loaded(self, index: int) -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def apply_marker(self, index: int, ending: TransactionEnd) -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def reread_states(self, ending: TransactionEnd) -> None:
        pass


class TransactionBroker(BrokerScene):
    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        transaction_version: int = 2,
        decisions: TransactionConfig | None = None,
        new_core: Callable[..., TransactionCore] = TransactionCore,
        rules: KafkaRules = NEWEST,
        **settings: Any,
    ) -> None:
        """Starts the coordinators on a disk.

        new_core  is called with the arguments of `TransactionCore`
        """
        self.new_core = new_core
        self.rules = rules
        self.disk = disk or FakeDisk()
        super().__init__(self.disk, "/data", **settings)
        self.authorizer = Denying()
        self.blocks = Blocks()
        self.features = {TRANSACTION_VERSION: transaction_version}
        self.config = decisions or TransactionConfig()
        self.spawn: Callable[[Coroutine[Any, Any, None]], None] = run  # runs the coroutine that loads a log
        self.broker.rules = rules
        self.start_groups()
        self.share_markers = self.make_share_markers()
        self.markers = MarkersThatMeet(LocalMarkerWriter(self.partitions, self.groups, self.clock, self.share_markers))
        self.broker.groups = self.groups
        self.broker.markers = LocalMarkerWriter(self.partitions, self.groups, self.clock, self.share_markers)
        self.broker.producer_ids = ProducerIds(self.blocks, self.timers)
        self.start_coordinator()

    def start_groups(self) -> None:
        """Starts a group coordinator, which loads the existing log."""
        self.groups = GroupCoordinator(
            CoordinatorSettings(GroupConfig(rules=self.rules), OffsetsTopic(3, 1, {}), Compression.NONE, 600_000),
            self.clock,
            self.timers,
            open_log=lambda index: EagerLog(self.partitions.get(GROUP_OFFSETS, index), self.workers),
            spawn=run,
            new_uuid=lambda: bytes(16),
            cluster=ImageView(self.image, BrokerConfig({}).current_text),
        )
        topic = self.image.topics.get(GROUP_OFFSETS)
        self.groups.start(None if topic is None else len(topic.partitions))
        self.broker.groups = self.groups

    def make_share_markers(self) -> ShareGroupMarkers:
        """Returns the writer of share group markers. In scenes without share groups, it writes none."""
        return NoShareGroups()

    def start_coordinator(self) -> None:
        """Starts a new coordinator, which loads the existing log, as after a restart. Does not change the
        partitions."""
        self.seals.by_producer.clear()
        self.transactions = TransactionCoordinator(
            TransactionSettings(self.config, 3, 10_000, 3_600_000),
            self.clock,
            self.timers,
            open_log=lambda index: EagerLog(self.partitions.get(TRANSACTION_STATE, index), self.workers),
            coordinator_epoch=lambda index: self.image.topics[TRANSACTION_STATE].partitions[index].leader_epoch,
            marker_writer=self.markers,
            partition_sync=LocalPartitionSync(self.partitions),
            producer_ids=self.broker.producer_ids,
            features=self.features,
            partition_exists=self.image.has_partition,
            spawn=lambda coroutine: self.spawn(coroutine),
            two_phase=self.two_phase,
            seals=self.seals,
            new_core=self.new_core,
        )
        self.broker.transactions = self.transactions
        topic = self.image.topics.get(TRANSACTION_STATE)
        self.transactions.start(None if topic is None else len(topic.partitions))

    def restart_coordinator(self) -> None:
        """Replaces the coordinator with a new one at the next leader epoch."""
        self.transactions.stop()
        topic = self.image.topics[TRANSACTION_STATE]
        for partition in topic.partitions:
            self.image.replay(
                PartitionChangeRecord(partition_id=partition.partition_id, topic_id=topic.topic_id, leader=NODE_ID)
            )
        self.start_coordinator()

    def topic(self, name: str, partition_count: int = 1, **settings: Any) -> TopicImage:
        topic = super().topic(name, partition_count, **settings)
        if name == TRANSACTION_STATE:
            self.transactions.state_topic_created(partition_count)
        elif name == GROUP_OFFSETS:
            self.groups.offsets_topic_created(partition_count)
        return topic

    def delete_topic(self, name: str) -> None:
        super().delete_topic(name)
        self.transactions.topic_deleted(name)

    # Requests.

    def ask(self, request: Message, version: int) -> Any:
        """Returns the response, or a Deferred for it. The request is encoded and decoded."""
        sent = decode(type(request), version, bytearray(encode(request, version)))
        connection = ConnectionInfo(1, "127.0.0.1", 50_000)
        context = RequestContext(
            ApiKey(request.API_KEY), version, 1, "a-client", self.clock.now_ms(), connection, self.authorizer
        )
        reply = HANDLERS[request.API_KEY](sent, context, self.broker)
        return answered(reply) if isinstance(reply, Coroutine) else reply

    def answer(self, request: Message, version: int, kind: type[M]) -> M:
        """Returns the response. Raises KafkaError if the request as a whole failed."""
        reply = self.ask(request, version)
        self.settle()
        message = answer_of(reply)
        return decode(kind, version, encode(message, version))

    def answer_or_refusal(self, request: Message, version: int, kind: type[M]) -> M:
        """Returns the response as the client gets it. Like the dispatcher, this also answers requests that fail as a
        whole."""
        try:
            return self.answer(request, version, kind)
        except KafkaError as error:
            api_key = ApiKey(request.API_KEY)
            refusal = error_reply(api_key, version, request, translate(api_key, error.code, version), error.message)
            return decode(kind, version, encode(refusal, version))

    def open_transaction(self, pair: tuple[int, int], *partitions: tuple[str, int]) -> None:
        """Appends the producer's records, as a partition leader does after verification."""
        for topic, index in partitions:
            batch = batch_by(pair, 0, b"v", at_ms=self.clock.now_ms())
            self.partition(topic, index).append_now(batch, origin=Origin.CLIENT, now_ms=self.clock.now_ms())

    def markers_in(self, topic: str, index: int = 0) -> list[Marker]:
        log = self.partition(topic, index).log
        found = []
        for portion in log.reader.scan(log.log_start_offset, log.log_end_offset):
            for position, header in batches(portion):
                marker = read_marker(portion, position, header) if header.is_control else None
                if marker is not None:
                    found.append(marker)
        return found


def is_parked(reply: Any) -> bool:
    return isinstance(reply, Deferred) and not reply.is_done
