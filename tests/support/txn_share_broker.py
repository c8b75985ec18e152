"""A broker scene at odradek.share.transactions 1, with members of a share group and producers that acknowledge for
them.

Requests and responses are encoded and decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from odradek.broker.api.context import ConnectionInfo, RequestContext
from odradek.broker.api.error_replies import error_reply
from odradek.broker.api.error_translations import translate
from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
from odradek.broker.handlers.cluster.features import pending_count
from odradek.broker.handlers.shares.txn_share_acknowledge import txn_share_acknowledge
from odradek.broker.metadata.features import FeatureUpdate, update_features
from odradek.broker.runtime.waiting import Deferred, start_coroutine
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.control_records import MARKER_BYTES
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from tests.support.fake_disk import FakeDisk
from tests.support.share_broker import GROUP, STATE_PARTITIONS, ShareBroker
from tests.support.share_member import Batches, Member
from tests.support.share_state_as_kafka import reported_batches

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class TxnShareBroker(ShareBroker):
    def __init__(self, disk: FakeDisk | None = None, *, share_version: int = 1, **settings: Any) -> None:
        super().__init__(disk, **settings)
        self.set_level("share.version", share_version)
        self.set_level("odradek.share.transactions", 1)
        self.set_level("transaction.version", 2)
        self.broker.has_started = lambda coordinator: True
        self.set_group(share_auto_offset_reset="earliest")
        for name, partition_count in ((TRANSACTION_STATE, 3), (GROUP_OFFSETS, 1)):
            if name not in self.image.topics:
                self.topic(name, partition_count)

    def joined(self, member_id: str, *topics: str) -> Member:
        """Returns a member that has joined the group at the group coordinator."""
        member = self.member(member_id)
        assert member.heartbeat(0, list(topics or ("T",))).error_code == 0
        return member

    def producer(self, transactional_id: str = "pay", **how: Any) -> Producer:
        producer = Producer(self, transactional_id)
        producer.init(**how)
        return producer

    @property
    def pending(self) -> int:
        """Returns the share coordinator's TxnPendingRecordsCount, after checking it against the leaders' state in
        memory."""
        stored = self.share_coordinator.pending_count()
        in_memory = {
            live.key: live.core.pending.record_count for live in self.shares.loaded_partitions if live.is_loaded
        }
        for key, count in in_memory.items():
            assert count == sum(each.record_count for each in self.share_coordinator.pending_in(key)), key
        return stored

    def kill(self) -> None:
        """Simulates kill -9. All state in memory is lost, including the members' connections and sessions."""
        self.restart_shares()
        self.restart_coordinator()
        self.settle()

    def listed_apis(self, handler: Any) -> list[tuple[int, int, int]]:
        """Returns (key, lowest version, highest version) for each API that ApiVersions lists."""
        context = RequestContext(
            ApiKey.API_VERSIONS, 0, 1, "c", 0, ConnectionInfo(1, "127.0.0.1", 50_000), self.authorizer
        )
        answer = handler(ApiVersionsRequest(), context, self.broker)
        return [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys]

    @property
    def sync_count(self) -> int:
        """Number of times that the share group state has been synced to disk."""
        return sum(call.startswith("sync") and SHARE_GROUP_STATE in call for call in self.disk.log)

    def state_takes_markers_only(self) -> Callable[[], None]:
        """Lowers the size limit of `__share_group_state` so that only markers fit, until the returned function is
        called."""
        logs = [self.partition(SHARE_GROUP_STATE, index).log for index in range(STATE_PARTITIONS)]
        configs = [log.config for log in logs]
        for log in logs:
            log.config = replace(log.config, max_message_bytes=MARKER_BYTES)

        def heal() -> None:
            for log, config in zip(logs, configs, strict=True):
                log.config = config

        return heal

    def reported_batches(self, topic_id: bytes) -> list[tuple[int, ...]]:
        """Returns the stored state as a reader that ignores markers and private tags sees it."""
        key = SharePartitionKey(GROUP, topic_id, 0)
        index = self.share_coordinator.partition_for(key)
        return reported_batches(self.partition(SHARE_GROUP_STATE, index).log, key)

    def move_leader_to(self, topic: str, leader: int = 2) -> None:
        """Moves the leadership of the topic's first partition to another broker."""
        topic_id = self.image.topics[topic].topic_id
        self.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader))

    def hold_registrations(self) -> Callable[[], None]:
        """Delays the transaction coordinator's responses to registrations until the returned function is called."""
        held = HeldRegistrations(self.transactions)
        self.broker.transactions = held

        def release() -> None:
            self.broker.transactions = self.transactions
            held.release()
            self.settle()

        return release

    def downgrade(self, level: int = 0) -> ErrorCode:
        updates = [FeatureUpdate("odradek.share.transactions", level, 2)]
        try:
            made = update_features(
                self.image,
                updates,
                node_id=1,
                min_insync_replicas="1",
                pending_count=lambda: pending_count(self.broker),
            )
        except KafkaError as error:
            return error.code
        for record in made.records:
            self.image.replay(record)
        return ErrorCode.NONE


class HeldRegistrations(TransactionCoordinator):
    """A transaction coordinator that delays its responses to registrations. Meanwhile tests may only register
    partitions and send InitProducerId, because other methods of a compiled coordinator do not find this class's
    attributes."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._held: list[tuple[Deferred[Any], Any]] = []

    def add_partitions(self, *args: Any, **how: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self._held.append((answer, self._coordinator.add_partitions(*args, **how)))
        return answer

    def init_producer_id(self, *args: Any, **how: Any) -> Any:
        return self._coordinator.init_producer_id(*args, **how)

    def release(self) -> None:
        for answer, codes in self._held:
            answer.resolve(codes.outcome() if isinstance(codes, Deferred) else codes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)


class Producer:
    """A producer. `pair` is the producer id and epoch of its next request."""

    def __init__(self, scene: TxnShareBroker, transactional_id: str) -> None:
        self.scene = scene
        self.transactional_id = transactional_id
        self.pair = (-1, -1)

    def init(self, *, timeout_ms: int = 60_000, two_phase: bool = False, keep: bool = False) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        for _ in range(3):
            answer = self.scene.answer(request, 6, InitProducerIdResponse)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS.value:
                break
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.pair = (answer.producer_id, answer.producer_epoch)
        return answer

    def begin_stage(
        self,
        member: Member,
        acks: Mapping[bytes | tuple[bytes, int], Batches],
        *,
        pair: tuple[int, int] | None = None,
        member_epoch: int | None = None,
        transactional_id: str | None = None,
        group_id: str | None = None,
        member_id: str | None = None,
    ) -> Deferred[Any]:
        """Sends a TxnShareAcknowledge and runs the broker until it is idle. Returns a Deferred for the response."""
        producer_id, producer_epoch = self.pair if pair is None else pair
        request = TxnShareAcknowledgeRequest(
            transactional_id=self.transactional_id if transactional_id is None else transactional_id,
            group_id=member.group_id if group_id is None else group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            member_id=member.member_id if member_id is None else member_id,
            member_epoch=member.member_epoch if member_epoch is None else member_epoch,
            topics=[_topic(each, batches) for each, batches in acks.items()],
        )
        return self._send(request, member.connection)

    def staged(self, reply: Deferred[Any]) -> TxnShareAcknowledgeResponse:
        assert reply.is_done, "the request is still parked"
        try:
            message = reply.outcome()
        except KafkaError as error:
            key = ApiKey.TXN_SHARE_ACKNOWLEDGE
            message = error_reply(key, 0, None, translate(key, error.code, 0), error.message)  # type: ignore[arg-type]
        return decode(TxnShareAcknowledgeResponse, 0, encode(message, 0))

    def stage(
        self, member: Member, acks: Mapping[bytes | tuple[bytes, int], Batches], **how: Any
    ) -> TxnShareAcknowledgeResponse:
        return self.staged(self.begin_stage(member, acks, **how))

    def codes(
        self, member: Member, acks: Mapping[bytes | tuple[bytes, int], Batches], **how: Any
    ) -> ErrorCode | list[ErrorCode]:
        """Returns the error code of the request as a whole, or the codes of its partitions."""
        return codes_of(self.stage(member, acks, **how))

    def begin_end(self, *, commit: bool) -> None:
        """Sends EndTxn without waiting for the response. Ignores refusals."""
        with suppress(KafkaError):
            self.scene.ask(self._end_request(self.pair, commit=commit), 5)
        self.scene.settle()

    def end(self, *, commit: bool, pair: tuple[int, int] | None = None) -> ErrorCode:
        request = self._end_request(self.pair if pair is None else pair, commit=commit)
        answer = self.scene.answer_or_refusal(request, 5, EndTxnResponse)
        self.scene.settle()
        if answer.error_code == 0:
            self.pair = (answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _end_request(self, pair: tuple[int, int], *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )

    def commit(self) -> ErrorCode:
        return self.end(commit=True)

    def abort(self) -> ErrorCode:
        return self.end(commit=False)

    def _send(self, request: TxnShareAcknowledgeRequest, connection: ConnectionInfo) -> Deferred[Any]:
        scene = self.scene
        sent = decode(type(request), 0, bytearray(encode(request, 0)))
        context = RequestContext(
            ApiKey.TXN_SHARE_ACKNOWLEDGE, 0, 1, "p", scene.clock.now_ms(), connection, scene.authorizer
        )
        reply: Deferred[Any] = Deferred()
        try:
            answer = start_coroutine(txn_share_acknowledge(sent, context, scene.broker))
        except KafkaError as error:
            reply.fail(error)
            return reply
        if isinstance(answer, Deferred):
            reply = answer
        else:
            reply.resolve(answer)
        scene.settle()
        return reply


def _topic(
    named: bytes | tuple[bytes, int], batches: Sequence[tuple[int, int, int | list[int]]]
) -> TxnShareAcknowledgeTopic:
    topic_id, index = named if isinstance(named, tuple) else (named, 0)
    return TxnShareAcknowledgeTopic(
        topic_id=topic_id,
        partitions=[
            TxnShareAcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    TxnShareAcknowledgeBatch(
                        first_offset=first,
                        last_offset=last,
                        acknowledge_types=[types] if isinstance(types, int) else types,
                    )
                    for first, last, types in batches
                ],
            )
        ],
    )


def codes_of(response: TxnShareAcknowledgeResponse) -> ErrorCode | list[ErrorCode]:
    if response.error_code != 0:
        assert response.responses == []
        return ErrorCode(response.error_code)
    return [ErrorCode(each.error_code) for topic in response.responses for each in topic.partitions]


__all__ = ["ACCEPT", "GROUP", "REJECT", "RELEASE", "RENEW", "Producer", "TxnShareBroker", "codes_of"]
