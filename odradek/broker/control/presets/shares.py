"""Presets of share groups. The presets themselves act as a member of the group. This member's acquisition locks expire
when the clock passes their timeout.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import GROUP, PresetClient
from odradek.broker.control.problems import Problem
from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS, SHARE_TRANSACTIONS_LEVEL
from odradek.broker.runtime.uuids import hex_text, random_uuid
from odradek.protocol.messages.share_acknowledge_request import AcknowledgementBatch as Acknowledged
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_acknowledge_response import ShareAcknowledgeResponse
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse

ACCEPT, RELEASE = 1, 2
RECORD_LIMIT = 1  # the ShareAcquireMode in which MaxRecords is a strict limit
MAX_FETCHES = 1_000
BATCH_RECORDS = 500


@dataclass(slots=True)
class PresetShareMember:
    client: PresetClient
    group: str
    topic: str
    member_id: str
    member_epoch: int = 0
    session_epoch: int = 0

    async def acquire(self, most: int) -> list[tuple[int, int, int]]:
        """Acquires up to `most` records. Returns the first offset, last offset and delivery count of each acquired
        range."""
        place = FetchPartition(partition_index=0, acknowledgement_batches=[])
        topics = [FetchTopic(topic_id=self.client.topic_id(self.topic), partitions=[place])]
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=64 * 1024 * 1024,
            max_records=most,
            batch_size=most,
            share_acquire_mode=RECORD_LIMIT,
            topics=[] if self.session_epoch else topics,
        )
        answer = await self.client.ask(request, ShareFetchResponse)
        self.session_epoch += 1
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in answer.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]

    async def acquire_some(self, most: int) -> list[tuple[int, int, int]]:
        """Calls `acquire` until it returns records, because the first fetch only initializes the share partition."""
        for _ in range(MAX_FETCHES):
            acquired = await self.acquire(most)
            if acquired:
                return acquired
            await self.client.pause()
        raise Problem(409, f"group {self.group} could not acquire any records of {self.topic}")

    async def acknowledge(self, first_offset: int, last_offset: int, kind: int) -> None:
        batch = Acknowledged(first_offset=first_offset, last_offset=last_offset, acknowledge_types=[kind])
        place = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[AcknowledgeTopic(topic_id=self.client.topic_id(self.topic), partitions=[place])],
        )
        await self.client.ask(request, ShareAcknowledgeResponse)
        self.session_epoch += 1

    async def leave(self) -> None:
        await self._heartbeat(-1)

    async def _heartbeat(self, epoch: int) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=[self.topic] if epoch == 0 else None,
        )
        self.member_epoch = (await self.client.ask(request, ShareGroupHeartbeatResponse)).member_epoch

    async def join(self) -> None:
        await self.client.coordinator(GROUP, self.group)
        await self._heartbeat(0)


async def _member(client: PresetClient, parameters: Parameters, records: int) -> PresetShareMember:
    """Joins a share group that reads from the beginning and returns the member. First makes sure that the topic has at
    least `records` records."""
    topic, group = parameters.text("topic"), parameters.text("group")
    await client.topic(topic)
    log = client.log(topic, 0)
    missing = records - (log.log_end_offset - log.log_start_offset)
    for first in range(0, missing, BATCH_RECORDS):
        await client.produce(topic, 0, [b"record"] * min(BATCH_RECORDS, missing - first))
    await client.group_config(group, "share.auto.offset.reset", "earliest")
    member = PresetShareMember(client, group, topic, hex_text(random_uuid()))
    await member.join()
    return member


async def share_lock_limit(client: PresetClient, parameters: Parameters) -> Facts:
    """The share partition has reached its limit of acquisition locks, so no more records can be acquired."""
    limit = client.broker.config.group_share_partition_max_record_locks
    member = await _member(client, parameters, limit + parameters.number("more"))
    acquired = 0
    while acquired < limit:
        acquired += sum(last - first + 1 for first, last, _ in await member.acquire_some(BATCH_RECORDS))
    return {"group": member.group, "member_id": member.member_id, "acquired": acquired}


async def last_delivery(client: PresetClient, parameters: Parameters) -> Facts:
    """The first record of the share partition can be delivered only once more, after many deliveries and releases."""
    limit = parameters.number("limit", 2, 25)
    member = await _member(client, parameters, 1)
    await client.group_config(member.group, "share.delivery.count.limit", str(limit))
    first = count = 0
    while count < limit - 1:
        first, last, count = (await member.acquire_some(1))[0]
        await member.acknowledge(first, last, RELEASE)
    await member.leave()
    return {"group": member.group, "offset": first, "delivery_count": count, "limit": limit}


async def tx_pending(client: PresetClient, parameters: Parameters) -> Facts:
    """The first record of the share partition is acknowledged in an open transaction, so its state is TX_PENDING. If
    needed, the feature odradek.share.transactions is enabled.
    """
    if not client.broker.metadata.image.acknowledges_in_transactions:
        update = FeatureUpdateKey(
            feature=SHARE_TRANSACTIONS, max_version_level=SHARE_TRANSACTIONS_LEVEL, upgrade_type=1
        )
        await client.ask(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse)
    member = await _member(client, parameters, 1)
    producer = await client.producer(parameters.text("transactional_id"), parameters.number("timeout_ms"))
    first, last, _ = (await member.acquire_some(1))[0]
    batch = TxnShareAcknowledgeBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
    place = TxnShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    request = TxnShareAcknowledgeRequest(
        transactional_id=producer.transactional_id,
        group_id=member.group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        topics=[TxnShareAcknowledgeTopic(topic_id=client.topic_id(member.topic), partitions=[place])],
    )
    await client.ask(request, TxnShareAcknowledgeResponse)
    return {**producer.facts(), "group": member.group, "member_id": member.member_id, "offset": first}
