"""Applies the acknowledgements of a ShareFetch or ShareAcknowledge request. Each partition has its own result.

Source: docs/spec/share-groups.md#s1-11, rows 8 to 14, #s1-13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.broker.runtime.waiting import NowOrLater, start_coroutine
from odradek.broker.shares.core.in_flight import Acknowledgement
from odradek.broker.shares.core.partition import check_form
from odradek.broker.shares.core.sessions import SessionKey
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.metadata.image import PartitionImage
    from odradek.broker.shares.leader.live_partition import LiveSharePartition
    from odradek.broker.shares.leader.shares import ShareBroker


class AcknowledgementBatch(Protocol):
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> list[int]: ...


class AcknowledgedPartition(NamedTuple):
    """The acknowledgements in one entry of a request, which may contain several entries for the same partition."""

    partition: TopicIdPartition
    batches: Sequence[AcknowledgementBatch]


class AcknowledgeResult(NamedTuple):
    """The result for one partition. If another node leads the partition, `leader` contains that node's id and epoch."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: PartitionImage | None = None


DONE: Final = AcknowledgeResult()


def acknowledge(
    named: Sequence[AcknowledgedPartition],
    session: SessionKey,
    *,
    may_renew: bool,
    context: RequestContext,
    broker: ShareBroker,
) -> dict[TopicIdPartition, NowOrLater[AcknowledgeResult]]:
    """Applies the acknowledgements and returns one result for each partition, in the order of the request. Several
    entries for the same partition are combined."""
    entries: dict[TopicIdPartition, list[Sequence[AcknowledgementBatch]]] = {}
    for partition, batches in named:
        entries.setdefault(partition, []).append(batches)
    return {
        partition: _acknowledge(partition, of_partition, session, may_renew, context, broker)
        for partition, of_partition in entries.items()
    }


def _acknowledge(
    partition: TopicIdPartition,
    entries: Sequence[Sequence[AcknowledgementBatch]],
    session: SessionKey,
    may_renew: bool,
    context: RequestContext,
    broker: ShareBroker,
) -> NowOrLater[AcknowledgeResult]:
    try:
        image = broker.metadata.image
        topic = image.topics_by_id.get(partition.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        acknowledgements = []
        for batches in entries:
            entry = [Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]
            check_form(entry, may_renew=may_renew)
            acknowledgements += entry
        context.require(Operation.READ, ResourceType.TOPIC, topic.name)
        placed = topic.partitions[partition.partition] if 0 <= partition.partition < len(topic.partitions) else None
        if placed is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not acknowledgements:
            return DONE
        if placed.leader != broker.partitions.node_id:
            return AcknowledgeResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, placed)
        live = broker.shares.find(SharePartitionKey(session.group_id, *partition))
        if live is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as refusal:
        return AcknowledgeResult(refusal.code, refusal.message)
    return start_coroutine(_apply_and_store(live, session.member_id, acknowledgements, placed))


async def _apply_and_store(
    live: LiveSharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement], placed: PartitionImage
) -> AcknowledgeResult:
    try:
        await live.acknowledge(member_id, acknowledgements)
    except KafkaError as error:
        leader = placed if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
        return AcknowledgeResult(error.code, error.message, leader)
    return DONE
