"""A share consumer whose requests the test sends one by one. Requests and responses are encoded and decoded."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.api.context import ConnectionInfo, RequestContext
from odradek.broker.api.error_replies import error_reply
from odradek.broker.api.error_translations import translate
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import response_class
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch as AcknowledgeBatch,
)
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.struct import Message
from tests.support.turns import answered

if TYPE_CHECKING:
    from tests.support.share_broker import ShareBroker

Batches = Sequence[tuple[int, int, int | list[int]]]


class PartitionAnswer(NamedTuple):
    """The part of a response for one partition. Only ShareFetch has `acquired`."""

    code: ErrorCode
    acknowledged: ErrorCode
    acquired: list[tuple[int, int, int]]
    data: Any


class Member:
    """A share consumer whose requests the test sends one by one. `epoch` is the session epoch of its next request."""

    def __init__(self, scene: ShareBroker, group_id: str, member_id: str, connection: ConnectionInfo) -> None:
        self.scene = scene
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = 0
        self.member_epoch = 0

    def send(self, request: Message, version: int) -> Any:
        """Sends a request and runs the broker until it is idle. Returns a Deferred for the response."""
        api_key = ApiKey(request.API_KEY)
        sent = decode(type(request), version, bytearray(encode(request, version)))
        now_ms = self.scene.clock.now_ms()
        context = RequestContext(api_key, version, 1, "c", now_ms, self.connection, self.scene.authorizer)
        reply: Deferred[Any] = Deferred()
        try:
            answer = HANDLERS[api_key](sent, context, self.scene.broker)
            if isinstance(answer, Coroutine):
                answer = answered(answer)
        except KafkaError as error:
            code = translate(api_key, error.code, version)
            answer = error_reply(api_key, version, request, code, error.message)
        if isinstance(answer, Deferred):
            reply = answer
        else:
            reply.resolve(answer)
        self.scene.settle()
        return reply

    def answer(self, reply: Deferred[Any], api_key: ApiKey, version: int) -> Any:
        assert reply.is_done, "the request is still parked"
        message: Any
        try:
            message = reply.outcome()
        except KafkaError as error:
            message = error_reply(api_key, version, None, error.code, error.message)  # type: ignore[arg-type]
        return decode(response_class(api_key.value), version, encode(message, version))

    def begin_fetch(
        self,
        *topic_ids: bytes,
        index: int = 0,
        epoch: int | None = None,
        max_records: int = 500,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        batch_size: int = 500,
        mode: int = 0,
        acks: dict[bytes, Batches] | None = None,
        forget: Sequence[bytes] = (),
        renew: bool = False,
        version: int = 2,
    ) -> Deferred[Any]:
        acks = acks or {}
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first,
                                    last_offset=last,
                                    acknowledge_types=[types] if isinstance(types, int) else types,
                                )
                                for first, last, types in acks.get(topic_id, ())
                            ],
                        )
                    ],
                )
                for topic_id in dict.fromkeys((*topic_ids, *acks))
            ],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id in forget],
        )
        return self.send(request, version)  # type: ignore[no-any-return]

    def fetched(self, reply: Deferred[Any], version: int = 2) -> Any:
        response = self.answer(reply, ApiKey.SHARE_FETCH, version)
        if response.error_code == 0:
            self.epoch += 1
        return response

    def fetch(self, *topic_ids: bytes, **how: Any) -> Any:
        """Sends a ShareFetch and returns the response. If it succeeds, the session epoch increases."""
        return self.fetched(self.begin_fetch(*topic_ids, **how), how.get("version", 2))

    def acquire(self, *topic_ids: bytes, **how: Any) -> list[tuple[int, int, int]]:
        """Fetches and returns (first offset, last offset, delivery count) for every acquired range."""
        response = self.fetch(*topic_ids, **how)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return [each for answer in partitions_of(response).values() for each in answer.acquired]

    def begin_ack(
        self,
        acks: dict[bytes, Batches],
        *,
        index: int = 0,
        epoch: int | None = None,
        renew: bool = False,
        version: int = 2,
    ) -> Deferred[Any]:
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgeBatch(
                                    first_offset=first,
                                    last_offset=last,
                                    acknowledge_types=[types] if isinstance(types, int) else types,
                                )
                                for first, last, types in batches
                            ],
                        )
                    ],
                )
                for topic_id, batches in acks.items()
            ],
        )
        return self.send(request, version)  # type: ignore[no-any-return]

    def acked(self, reply: Deferred[Any], version: int = 2) -> Any:
        response = self.answer(reply, ApiKey.SHARE_ACKNOWLEDGE, version)
        if response.error_code == 0:
            self.epoch += 1
        return response

    def ack(self, acks: dict[bytes, Batches], **how: Any) -> Any:
        return self.acked(self.begin_ack(acks, **how), how.get("version", 2))

    def ack_code(self, topic_id: bytes, *batches: tuple[int, int, int | list[int]], **how: Any) -> ErrorCode:
        """Acknowledges records of one partition and returns that partition's error code."""
        response = self.ack({topic_id: batches}, **how)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return partitions_of(response)[topic_id, how.get("index", 0)].code

    def heartbeat(
        self, epoch: int | None = None, topics: list[str] | None = None, *, rack_id: str | None = None
    ) -> Any:
        """Sends a heartbeat and returns the response. The next heartbeat has the member epoch of the response."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch if epoch is None else epoch,
            rack_id=rack_id,
            subscribed_topic_names=topics,
        )
        response = self.answer(self.send(request, 1), ApiKey.SHARE_GROUP_HEARTBEAT, 1)
        if response.error_code == 0:
            self.member_epoch = response.member_epoch
        return response

    def ask(self, request: Message, version: int) -> Any:
        return self.answer(self.send(request, version), ApiKey(request.API_KEY), version)

    def disconnect(self) -> None:
        self.connection.notify_closed()
        self.scene.settle()


def partitions_of(response: Any) -> dict[tuple[bytes, int], PartitionAnswer]:
    return {
        (topic.topic_id, partition.partition_index): PartitionAnswer(
            ErrorCode(partition.error_code),
            ErrorCode(getattr(partition, "acknowledge_error_code", 0)),
            [
                (each.first_offset, each.last_offset, each.delivery_count)
                for each in getattr(partition, "acquired_records", ())
            ],
            partition,
        )
        for topic in response.responses
        for partition in topic.partitions
    }


def _handlers() -> dict[ApiKey, Any]:
    from odradek.broker.handlers.by_api_key import handler_of

    keys = (
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.FIND_COORDINATOR,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    )
    return {key: handler_of(key) for key in keys}


HANDLERS = _handlers()
