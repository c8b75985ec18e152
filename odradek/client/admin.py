"""The admin client: topics, settings, groups, records, the cluster, and the transactions of other producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from odradek.client import administration
from odradek.client.administration.cluster import ClusterDescription, FeatureDescription, UpgradeType
from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import (
    ClientError,
    ProducerFenced,
    check,
    code_of,
)
from odradek.client.common.values import OffsetAndMetadata, PreparedTxnState, TopicPartition, blocks
from odradek.client.metrics.client_metrics import ClientMetrics
from odradek.client.network.cluster import (
    DEFAULT_REQUEST_TIMEOUT_MS,
    DEFAULT_RETRY_BACKOFF_MAX_MS,
    DEFAULT_RETRY_BACKOFF_MS,
    Cluster,
    CoordinatorType,
)
from odradek.client.network.connected import ConnectedClient
from odradek.client.security.settings import Security, SecuritySettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.client.administration.configs import ConfigChange, ConfigEntry, ConfigResource
    from odradek.client.administration.groups import GroupDescription, GroupListing, SharePartitionOffset
    from odradek.client.administration.streams_groups import StreamsGroupDescription
    from odradek.client.administration.topics import NewTopic, TopicDescription
    from odradek.client.administration.transactions import ActiveProducer, TransactionDescription, TransactionListing
    from odradek.client.consuming.offset_lookup import OffsetAndTimestamp
    from odradek.client.producing.producer_batch import ProducerIdentity

T = TypeVar("T")
M = TypeVar("M", bound=Message)

BROKER_DEFAULT_VALUE = -1
FENCED_AT_ONCE = 500  # maximum number of producers fenced concurrently; each needs its own request
DELETED_BY_NAME = 5  # last version of DeleteTopics with a plain list of topic names
# First version of EndTxn that is safe to retry, because the broker recognises a retry until the next transaction ends.
END_TXN_OF_ONE_EPOCH = 5
EPOCHS_PER_TRANSACTION = 2  # lowest level of transaction.version that gives each transaction its own epoch
UNEXPECTED_END_ERRORS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class Admin(ConnectedClient):
    """Administers topics, settings, groups and transactions.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", partitions=3)])
            for name in await admin.list_topics():
                ...

    An admin client must be started before use and closed afterwards, preferably with `async with`. Each call retries
    transient errors for up to `default_api_timeout_ms`, then raises RetriableError. An error that a broker reports is
    raised as ClientError, with the broker's error code in `code`.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        client_id: str = "odradek",
        default_api_timeout_ms: float = 60_000,
        request_timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS,
        retry_backoff_ms: float = DEFAULT_RETRY_BACKOFF_MS,
        retry_backoff_max_ms: float = DEFAULT_RETRY_BACKOFF_MAX_MS,
        bootstrap_timeout_ms: float = 0,
        **security: Unpack[SecuritySettings],
    ) -> None:
        """Creates an admin client. `start` connects it.

        default_api_timeout_ms   how long each call retries transient errors
        bootstrap_timeout_ms     how long `start` retries if no broker can be reached
        """
        self._metrics = ClientMetrics("admin-client", client_id)
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            allow_auto_create_topics=False,  # describing a misspelt topic must not create it
            security=Security.of(security),
            metrics=self._metrics,
        )
        self._request_timeout_ms = int(request_timeout_ms)
        # Used for requests that have no method in this class.
        self.requests = AdminRequests(
            self._cluster, timeout_s=default_api_timeout_ms / 1000, request_timeout_ms=self._request_timeout_ms
        )
        self._retry = self.requests.retry

    async def start(self) -> None:
        """Connects to the cluster. Raises RetriableError if no broker answers within `bootstrap_timeout_ms`;
        AuthenticationFailed if a broker refuses the login."""
        await self._connect()

    async def close(self) -> None:
        """Closes all connections. A closed client cannot be started again."""
        await self._cluster.close()

    # Topics.

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Creates topics. Raises ClientError for the first topic that is refused, for example with
        TOPIC_ALREADY_EXISTS. The other topics are still created."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=new.topic,
                    num_partitions=BROKER_DEFAULT_VALUE if new.partitions is None else new.partitions,
                    replication_factor=BROKER_DEFAULT_VALUE
                    if new.replication_factor is None
                    else new.replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in new.configs.items()],
                )
                for new in topics
            ],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> CreateTopicsResponse:
            answer = await self._cluster.ask(request, CreateTopicsResponse)
            _check_controller((result.name, result.error_code) for result in answer.topics)
            return answer

        for result in (await self._retry(ask)).topics:
            check(result.error_code, f"the topic {result.name!r}", result.error_message)

    async def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Increases the number of partitions of each topic to the given total. Raises ClientError for the first topic
        that is refused, for example with INVALID_PARTITIONS if it already has that many partitions. The other topics
        are still extended."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=topic, count=count, assignments=None) for topic, count in totals.items()
            ],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> CreatePartitionsResponse:
            answer = await self._cluster.ask(request, CreatePartitionsResponse)
            _check_controller((result.name, result.error_code) for result in answer.results)
            return answer

        for result in (await self._retry(ask)).results:
            check(result.error_code, f"the topic {result.name!r}", result.error_message)

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Deletes topics. Raises ClientError for the first topic that is refused, for example with
        UNKNOWN_TOPIC_OR_PARTITION. The other topics are still deleted."""
        request = DeleteTopicsRequest(topic_names=list(topics), timeout_ms=self._request_timeout_ms)

        async def ask() -> DeleteTopicsResponse:
            answer = await self._cluster.ask(request, DeleteTopicsResponse, max_version=DELETED_BY_NAME)
            _check_controller((result.name, result.error_code) for result in answer.responses)
            return answer

        for result in (await self._retry(ask)).responses:
            check(result.error_code, f"the topic {result.name!r}", result.error_message)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Returns the names of all topics in sorted order. Includes internal topics only if `include_internal` is
        set."""
        answer = await self._metadata(None)
        return sorted(result.name or "" for result in answer if include_internal or not result.is_internal)

    async def describe_topics(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Returns the topics' descriptions, keyed by topic name. Raises ClientError for the first topic that the broker
        cannot describe, for example with UNKNOWN_TOPIC_OR_PARTITION."""
        found = {}
        for result in await self._metadata(list(topics)):
            check(result.error_code, f"the topic {result.name!r}")
            found[result.name or ""] = administration.topics.topic_description(result)
        return found

    async def _metadata(self, topics: list[str] | None) -> list[MetadataResponseTopic]:
        requested = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=requested, allow_auto_topic_creation=False)
        return (await self._retry(lambda: self._cluster.ask(request, MetadataResponse))).topics

    # Settings.

    async def describe_configs(self, resource: ConfigResource) -> list[ConfigEntry]:
        """Returns all settings of a topic, broker or group, sorted by name. Raises ClientError if the broker refuses
        the request."""
        return await administration.configs.describe_configs(self.requests, resource)

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Changes individual settings (IncrementalAlterConfigs); all other settings keep their values. Raises
        ClientError if a change is refused, for example with INVALID_CONFIG."""
        await administration.configs.alter_configs(self.requests, changes, validate_only=validate_only)

    # Groups.

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Returns the groups, of any type, that match both filters, sorted by id."""
        return await administration.groups.list_groups(self.requests, states=states, types=types)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describes a classic or consumer group. Raises ClientError (GROUP_ID_NOT_FOUND)."""
        return await administration.groups.describe_group(self.requests, group_id)

    async def describe_share_group(self, group_id: str) -> GroupDescription:
        """Describes a share group. Raises ClientError (GROUP_ID_NOT_FOUND)."""
        return await administration.groups.describe_share_group(self.requests, group_id)

    async def describe_streams_group(self, group_id: str) -> StreamsGroupDescription:
        """Describes a streams group (KIP-1071): its topology and its members with their tasks. Raises ClientError
        (GROUP_ID_NOT_FOUND)."""
        return await administration.streams_groups.describe_streams_group(self.requests, group_id)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups of any type. Raises ClientError for the first group that is refused (NON_EMPTY_GROUP,
        GROUP_ID_NOT_FOUND)."""
        for group_id in group_ids:
            await administration.groups.delete_group(self.requests, group_id)

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns all the group's committed offsets. The result is empty if the group does not exist."""
        return await administration.groups.list_group_offsets(self.requests, group_id)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Commits offsets for a group that has no members and creates the group if necessary. Raises ClientError
        (CommitFailed if the group has members)."""
        await administration.groups.alter_group_offsets(self.requests, group_id, offsets)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes committed offsets. Raises ClientError (GROUP_SUBSCRIBED_TO_TOPIC if members are reading the
        topic)."""
        await administration.groups.delete_group_offsets(self.requests, group_id, partitions)

    async def list_share_group_offsets(self, group_id: str) -> dict[TopicPartition, SharePartitionOffset]:
        """Returns the start offset and lag of each share partition of the group. Raises ClientError if the broker
        refuses the request."""
        return await administration.groups.list_share_group_offsets(self.requests, group_id)

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the start offsets of share partitions. Raises ClientError (NON_EMPTY_GROUP if the group has members)."""
        await administration.groups.alter_share_group_offsets(self.requests, group_id, offsets)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Deletes the share group's state for these topics. Raises ClientError (NON_EMPTY_GROUP if the group has
        members)."""
        await administration.groups.delete_share_group_offsets(self.requests, group_id, topics)

    # Records and the cluster.

    async def list_offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the offset and timestamp of each partition's first record with at least the given timestamp, or None
        if there is no such record.

        timestamps_ms   `EARLIEST`, `LATEST` and `MAX_TIMESTAMP` of `odradek.client.administration.records` select the
                        start, the end, and the record with the largest timestamp
        is_committed    if True, the end of a partition is its last stable offset instead of its high watermark
        """
        return await administration.records.offsets(self.requests, timestamps_ms, is_committed=is_committed)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the records below the given offsets and returns the new log start offsets.

        The offset -1 means the high watermark. Raises ClientError for the first partition that is refused, for example
        with OFFSET_OUT_OF_RANGE. Records of other partitions may already have been deleted.
        """
        return await administration.records.delete_records(self.requests, before)

    async def log_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the size of each partition's log in bytes, as reported by the partition's leader (DescribeLogDirs).

        Partitions that have no leader are left out. Raises ClientError (CLUSTER_AUTHORIZATION_FAILED).
        """
        return await administration.records.log_sizes(self.requests, partitions)

    async def describe_cluster(self) -> ClusterDescription:
        """Returns the brokers with their advertised addresses, the controller, and the finalized features."""
        return await administration.cluster.describe_cluster(self.requests)

    async def describe_features(self) -> dict[str, FeatureDescription]:
        """Returns the supported levels and the finalized level of each feature, keyed by feature name."""
        return await administration.cluster.describe_features(self.requests)

    async def update_features(
        self, levels: Mapping[str, int], kind: UpgradeType = UpgradeType.UPGRADE, *, validate_only: bool = False
    ) -> None:
        """Sets the finalized levels of these features. If the broker refuses one of the levels, no level is changed.
        Raises ClientError (INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED) with the broker's reason."""
        await administration.cluster.update_features(self.requests, levels, kind, validate_only=validate_only)

    # Transactions.

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Lists the transactional ids that match all filters, sorted by id.

        longer_than_ms   minimum time since the last transaction began. As in Kafka, the filter also matches ids that
                         have never had a transaction; combine it with the state Ongoing to exclude them.

        Raises ClientError (UNSUPPORTED_VERSION) if the brokers do not support a filter.
        """
        return await administration.transactions.list_transactions(
            self.requests,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            transactional_id_pattern=transactional_id_pattern,
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Describes transactions by transactional id. Raises ClientError (TRANSACTIONAL_ID_NOT_FOUND) if an id does not
        exist."""
        describe = administration.transactions.describe_transaction
        return {each: await describe(self.requests, each) for each in transactional_ids}

    async def force_terminate_transaction(self, transactional_id: str) -> None:
        """Aborts the open transaction of this transactional id, even if it is prepared, and fences its producer
        (KIP-939).

        Use this method if the process that should decide the transaction will never return. The call returns when the
        abort is complete; a new producer can then use the id.

        No external coordinator is consulted. If an external coordinator has already decided to commit, the
        transaction's records are lost. Raises ClientError if the broker refuses, for example with
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        await administration.transactions.fence_producer(self.requests, transactional_id)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdentity]:
        """Fences the producers of these transactional ids and aborts their open transactions, like
        `force_terminate_transaction` for each id. Returns the new producer id and epoch of each transactional id.

        An id that no producer has used is created. Raises ClientError for the first id that is refused; the producers
        of other ids may already have been fenced.
        """
        fence = administration.transactions.fence_producer
        fenced: dict[str, ProducerIdentity] = {}
        for ids in blocks(dict.fromkeys(transactional_ids), FENCED_AT_ONCE):
            found = await asyncio.gather(*(fence(self.requests, each) for each in ids), return_exceptions=True)
            for transactional_id, identity in zip(ids, found, strict=True):
                if isinstance(identity, BaseException):
                    raise identity
                fenced[transactional_id] = identity
        return fenced

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Returns the idempotent and transactional producers that have written to each partition, with their open
        transactions.

        broker_id   the broker to query, which may be a follower; by default, the leader of each partition

        Raises ClientError for the first partition whose producers cannot be listed (UNKNOWN_TOPIC_OR_PARTITION,
        TOPIC_AUTHORIZATION_FAILED).
        """
        return await administration.transactions.describe_producers(self.requests, partitions, broker_id=broker_id)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Aborts a producer's open transaction in one partition by writing an abort marker there.

        Use it for a hanging transaction, which no coordinator will ever end. `describe_producers` returns the arguments
        to pass.

        No coordinator is contacted. If the transaction does have a coordinator, then neither the coordinator nor the
        other partitions learn of the abort, and a later commit would be incomplete. Prefer `fence_producers`, or
        `odradek transactions abort`, which checks for a coordinator first.

        coordinator_epoch   as returned by `describe_producers`

        Raises ClientError (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, CLUSTER_AUTHORIZATION_FAILED,
        UNKNOWN_TOPIC_OR_PARTITION).
        """
        await administration.transactions.abort_transaction(
            self.requests,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    async def end_transaction(self, transactional_id: str, state: PreparedTxnState, *, committed: bool) -> None:
        """Commits or aborts a transaction that another process has prepared.

        Returns once the transaction has the requested outcome, even if it ended earlier. The call is safe to repeat as
        long as no other transaction begins under the transactional id. The outcome is certain only if the call returns.

        Raises ProducerFenced if the transaction can no longer have this outcome: it ended with the opposite outcome, an
        operator or a newer producer has taken over, or another transaction has begun under the id. Raises ClientError
        (UNSUPPORTED_VERSION) if the cluster's transaction.version is below 2. After any other error the outcome is
        unknown. Does nothing for the empty state, which identifies no transaction.
        """
        if not state.has_transaction:
            return
        kind = CoordinatorType.TRANSACTION
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            committed=committed,
        )

        async def end() -> None:
            if self._cluster.transaction_version < EPOCHS_PER_TRANSACTION:
                await self._cluster.refresh_features()
            if self._cluster.transaction_version < EPOCHS_PER_TRANSACTION:
                what = (
                    "below transaction.version 2, a pair of producer id and epoch does not identify a single"
                    " transaction"
                )
                raise ClientError(what, ErrorCode.UNSUPPORTED_VERSION)
            answer = await self._cluster.ask_coordinator(
                transactional_id, kind, request, EndTxnResponse, min_version=END_TXN_OF_ONE_EPOCH
            )
            code = code_of(answer.error_code)
            if code in UNEXPECTED_END_ERRORS:
                outcome = "committed" if committed else "aborted"
                text = f"the transaction {state} of {transactional_id!r} was not {outcome}, and can no longer be"
                raise ProducerFenced(f"{text}: {code.name}", code)
            self.requests.check_coordinator(kind, transactional_id, answer.error_code)

        await self._retry(end)

    async def end_transactions(self, ends: Iterable[tuple[str, PreparedTxnState, bool]]) -> list[ClientError | None]:
        """Runs `end_transaction` concurrently for each tuple of a transactional id, a state, and True to commit or
        False to abort.

        Returns a list in the same order, with None for each success and a ClientError, such as ProducerFenced, for each
        failure. These errors are returned, not raised.
        """

        async def end(transactional_id: str, state: PreparedTxnState, committed: bool) -> ClientError | None:
            try:
                await self.end_transaction(transactional_id, state, committed=committed)
            except ClientError as error:
                return error
            return None

        return await asyncio.gather(*(end(*each) for each in ends))


def _check_controller(topics: Iterable[tuple[str | None, int]]) -> None:
    """Raises RetriableError if a topic was refused because the controller has moved. The caller then retries the
    request."""
    for name, error_code in topics:
        if error_code == ErrorCode.NOT_CONTROLLER.value:
            check(error_code, f"the topic {name!r}")
