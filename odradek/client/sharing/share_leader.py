"""Sends a share consumer's requests to one broker that leads share partitions. Only one request is in flight at a
time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.client.common.errors import RETRIABLE, ClientError, RetriableError, code_of, refusal
from odradek.client.common.values import ShareRecord, TopicPartition
from odradek.client.metrics.consumer_metrics import ShareConsumerMetrics
from odradek.client.network.cluster import Cluster
from odradek.client.sharing.acquired import Acquisitions, FetchedShareRecords, SentAcknowledgements, read_acquired
from odradek.client.sharing.share_session import (
    FINAL_EPOCH,
    SESSION_LOST_ERRORS,
    AcquireMode,
    ShareSession,
    ShareSettings,
    acknowledge_request,
    fetch_request,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_acknowledge_response import ShareAcknowledgeResponse
from odradek.protocol.messages.share_fetch_response import PartitionData, ShareFetchResponse
from odradek.protocol.topic_partition import TopicIdPartition

CHANNEL = "share"
RENEWS_AND_LIMITS = 2  # first version of ShareFetch and ShareAcknowledge with renewals and the record-limit mode
FIRST_VERSION = 1
# Errors after which an acknowledgement is sent again, because the broker could not store it and has decided nothing.
UNDECIDED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# Errors after which a fetch is retried. Kafka 4.3.1 refuses an entire ShareFetch with UNKNOWN_SERVER_ERROR if one of
# its topics was deleted, until the assignment no longer contains that topic.
TRANSIENT_ERRORS = SESSION_LOST_ERRORS | RETRIABLE | {ErrorCode.UNKNOWN_SERVER_ERROR}


@dataclass(frozen=True, slots=True)
class AcknowledgementOutcome:
    """The outcome of one partition's acknowledgements. `error` is None if the broker has stored them."""

    partition: TopicPartition
    ranges: list[tuple[int, int]]
    error: ClientError | None


@dataclass(frozen=True, slots=True)
class ShareDelivery:
    """Records of one partition, and the ranges that they were acquired in."""

    named: TopicIdPartition
    partition: TopicPartition
    acquired: FetchedShareRecords


@dataclass(slots=True)
class ShareFetchResult:
    """The result of one ShareFetch."""

    deliveries: list[ShareDelivery] = field(default_factory=list)
    refused: dict[TopicPartition, ClientError] = field(default_factory=dict)


class ShareLeader:
    def __init__(self, cluster: Cluster, node_id: int, settings: ShareSettings, metrics: ShareConsumerMetrics) -> None:
        self._metrics = metrics
        self.node_id = node_id
        self.acquired = Acquisitions()
        self.acknowledged: list[AcknowledgementOutcome] = []  # outcomes that the application has not taken yet
        self._cluster = cluster
        self._settings = settings
        self._session = ShareSession()
        self._asking = asyncio.Lock()
        # The lock timeout for records acquired or renewed from now on, as last reported by the broker.
        self.lock_timeout_ms: int | None = None

    def needs_request(self, requested: Iterable[TopicIdPartition]) -> bool:
        """Returns whether a request is due. A request may be due even if there are no partitions to fetch, because the
        session may have to forget partitions."""
        return bool(set(requested) or self._session.partitions or self.acquired.unsent_partitions)

    async def fetch(self, requested: Mapping[TopicIdPartition, TopicPartition], max_wait_ms: int) -> ShareFetchResult:
        """Sends one ShareFetch with the waiting acknowledgements. Raises ClientError. After a lost response, a new
        session begins."""
        async with self._asking:
            if self.acquired.has_renewals:  # a request that contains renewals fetches nothing
                await self._acknowledge()
            sendings = self._take_acknowledgements()
            partitions = frozenset(requested)
            if not partitions and not self._session.is_open:
                return ShareFetchResult()
            named = self._session.partitions_to_name(partitions, sendings)
            request = fetch_request(
                self._settings, self._session.epoch, named, sendings, max_wait_ms=max_wait_ms if partitions else 0
            )
            is_limited = self._settings.acquire_mode is AcquireMode.RECORD_LIMIT
            timeout_ms = max_wait_ms + self._cluster.request_timeout_ms
            try:
                answer = await self._cluster.ask(
                    request,
                    ShareFetchResponse,
                    node_id=self.node_id,
                    min_version=RENEWS_AND_LIMITS if is_limited else FIRST_VERSION,
                    timeout_ms=timeout_ms,
                    channel=CHANNEL,
                )
            except BaseException as error:
                self._on_lost_response(sendings, error)
                raise
            code = code_of(answer.error_code)
            self._session.on_fetch_response(partitions, code)
            if code is not ErrorCode.NONE:
                refused = refusal(code, "ShareFetch", answer.error_message)
                self._settle_all(sendings, refused)
                raise RetriableError(str(refused), code) if code in TRANSIENT_ERRORS else refused
            self.lock_timeout_ms = answer.acquisition_lock_timeout_ms
            return self._read_response(answer, requested, sendings)

    def deliver(self, delivery: ShareDelivery) -> list[ShareRecord]:
        """Delivers the records to the application, which must then acknowledge them."""
        self.acquired.add(delivery.partition, delivery.named.topic_id, delivery.acquired.ranges)
        return delivery.acquired.records

    async def acknowledge(self, *, is_final: bool = False) -> None:
        """Sends the waiting acknowledgements and stores the outcomes in `acknowledged`. Errors that concern only
        acknowledgements are not raised.

        is_final   close the session: the broker then releases all records that were acquired but not acknowledged
        """
        async with self._asking:
            await self._acknowledge(is_final=is_final)

    def give_up_records(self, error: ClientError) -> None:
        """Gives up all records, because the application will not acknowledge anything more."""
        self._settle_all(self.acquired.take(), error)
        self.acquired.clear()

    # Internals. They run while no other request is in flight.

    async def _acknowledge(self, *, is_final: bool = False) -> None:
        sendings = self._take_acknowledgements()
        if not (sendings or is_final) or not self._session.is_open:
            return
        epoch = FINAL_EPOCH if is_final else self._session.epoch
        request = acknowledge_request(self._settings, epoch, sendings)
        try:
            answer = await self._cluster.ask(
                request,
                ShareAcknowledgeResponse,
                node_id=self.node_id,
                min_version=RENEWS_AND_LIMITS if request.is_renew_ack else FIRST_VERSION,
                channel=CHANNEL,
            )
        except ClientError as error:
            self._on_lost_response(sendings, error)
            return
        except BaseException as error:
            self._on_lost_response(sendings, error)
            raise
        code = code_of(answer.error_code)
        if is_final:
            self._session.reset()
        else:
            self._session.on_acknowledge_response(sendings, code)
        if code is not ErrorCode.NONE:
            self._settle_all(sendings, refusal(code, "ShareAcknowledge", answer.error_message))
            return
        left = dict(sendings)
        for topic in answer.responses:
            for result in topic.partitions:
                sending = left.pop(TopicIdPartition(topic.topic_id, result.partition_index), None)
                if sending is not None:
                    self._settle(sending, code_of(result.error_code), result.error_message)
        self._settle_missing(left)

    def _take_acknowledgements(self) -> Mapping[TopicIdPartition, SentAcknowledgements]:
        """Takes the acknowledgements to send. Without a session there is nothing to send, because the broker has
        released the records, or will release them when their locks expire."""
        sendings = self.acquired.take()
        if sendings and not self._session.is_open:
            self._settle_all(sendings, refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "the share session was lost"))
            return {}
        return sendings

    def _read_response(
        self,
        answer: ShareFetchResponse,
        requested: Mapping[TopicIdPartition, TopicPartition],
        sendings: Mapping[TopicIdPartition, SentAcknowledgements],
    ) -> ShareFetchResult:
        found = ShareFetchResult()
        left = dict(sendings)
        size_bytes = 0
        for topic in answer.responses:
            for data in topic.partitions:
                size_bytes += len(data.records or b"")
                named = TopicIdPartition(topic.topic_id, data.partition_index)
                sending = left.pop(named, None)
                if sending is not None:
                    self._settle(sending, code_of(data.acknowledge_error_code), data.acknowledge_error_message)
                partition = requested.get(named)
                if partition is not None:
                    self._read_partition(named, partition, data, found)
        self._settle_missing(left)
        if size_bytes:
            self._metrics.record_fetch(sum(len(each.acquired.records) for each in found.deliveries), size_bytes)
        return found

    def _read_partition(
        self, named: TopicIdPartition, partition: TopicPartition, data: PartitionData, found: ShareFetchResult
    ) -> None:
        code = code_of(data.error_code)
        what = f"records of {partition.topic}-{partition.partition}"
        if code is not ErrorCode.NONE:
            found.refused[partition] = refusal(code, what, data.error_message)
        elif data.acquired_records:
            assert not isinstance(data.records, list)
            acquired = read_acquired(
                partition, data.records or b"", data.acquired_records, checks_crcs=self._settings.check_crcs
            )
            delivery = ShareDelivery(named, partition, acquired)
            if acquired.records:
                found.deliveries.append(delivery)
            else:
                self.deliver(delivery)
            if acquired.damage is not None:
                found.refused[partition] = ClientError(f"{what}: {acquired.damage}", ErrorCode.CORRUPT_MESSAGE)

    # Outcomes of acknowledgements.

    def _on_lost_response(
        self, sendings: Mapping[TopicIdPartition, SentAcknowledgements], error: BaseException
    ) -> None:
        """Handles a missing response, after which it is unknown whether the broker has processed the request."""
        self._session.reset()
        text = str(error) or type(error).__name__
        self._settle_all(sendings, RetriableError(text, error.code if isinstance(error, ClientError) else None))

    def _settle(self, sending: SentAcknowledgements, code: ErrorCode, message: str | None) -> None:
        partition = sending.partition
        if code in UNDECIDED:
            self.acquired.requeue(sending)
        elif code is ErrorCode.NONE:
            self._record_outcome(sending, None)
        else:
            what = f"acknowledgements of {partition.topic}-{partition.partition}"
            self._record_outcome(sending, refusal(code, what, message))

    def _settle_missing(self, left: Mapping[TopicIdPartition, SentAcknowledgements]) -> None:
        """Settles acknowledgements that the response does not mention. They are treated as refused with
        INVALID_RECORD_STATE (P4)."""
        for sending in left.values():
            self._settle(sending, ErrorCode.INVALID_RECORD_STATE, "the broker's answer does not contain this partition")

    def _settle_all(self, sendings: Mapping[TopicIdPartition, SentAcknowledgements], error: ClientError) -> None:
        for sending in sendings.values():
            self._record_outcome(sending, error)

    def _record_outcome(self, sending: SentAcknowledgements, error: ClientError | None) -> None:
        self.acquired.settle(sending, is_done=error is None)
        if ranges := sending.acknowledged:
            self._metrics.record_acknowledgements(ranges, has_failed=error is not None)
            self.acknowledged.append(AcknowledgementOutcome(sending.partition, ranges, error))
