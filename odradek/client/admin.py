"""Administration: topics, settings, groups, records, the cluster, and the transactions of other producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from odradek.client import administration
from odradek.client.administration.asking import Asking
from odradek.client.administration.cluster import ClusterDescription, FeatureDescription, UpgradeType
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
    from odradek.client.administration.topics import NewTopic, TopicDescription
    from odradek.client.administration.transactions import ActiveProducer, TransactionDescription, TransactionListing
    from odradek.client.consuming.offset_lookup import OffsetAndTimestamp
    from odradek.client.producing.producer_batch import ProducerIdentity

T = TypeVar("T")
M = TypeVar("M", bound=Message)

THE_BROKERS_DEFAULT = -1
FENCED_AT_ONCE = 500  # producers, each with a request of its own
DELETED_BY_NAME = 5  # DeleteTopics takes names in a list of their own up to this version
END_TXN_OF_ONE_EPOCH = 5  # the version of EndTxn whose repetition is known from the end of the next transaction
EPOCHS_PER_TRANSACTION = 2  # the level of transaction.version at which that is so
NOT_ENDED_SO = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class Admin(ConnectedClient):
    """Administers topics and transactions. Start and close it, best with `async with`."""

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
        """
        default_api_timeout_ms   how long every call retries transient errors
        bootstrap_timeout_ms     how long `start` waits for a broker that is away
        """
        self._metrics = ClientMetrics("admin-client", client_id)
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            allow_auto_create_topics=False,  # looking at a topic whose name is misspelt must not create it
            security=Security.of(security),
            metrics=self._metrics,
        )
        self._request_timeout_ms = int(request_timeout_ms)
        # For requests that have no method here.
        self.asking = Asking(
            self._cluster, timeout_s=default_api_timeout_ms / 1000, request_timeout_ms=self._request_timeout_ms
        )
        self._patiently = self.asking.patiently

    async def start(self) -> None:
        """Find the cluster. Raises RetriableError when no broker answers for `bootstrap_timeout_ms`."""
        await self._connect()

    async def close(self) -> None:
        await self._cluster.close()

    # Topics.

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Raises ClientError for the first that is refused (TOPIC_ALREADY_EXISTS …); the others are created."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=new.topic,
                    num_partitions=THE_BROKERS_DEFAULT if new.partitions is None else new.partitions,
                    replication_factor=THE_BROKERS_DEFAULT
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
            _check_controller((told.name, told.error_code) for told in answer.topics)
            return answer

        for told in (await self._patiently(ask)).topics:
            check(told.error_code, f"the topic {told.name!r}", told.error_message)

    async def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Let each topic have so many partitions in all. Raises ClientError for the first that is refused
        (INVALID_PARTITIONS for fewer than it has …); the others are extended."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=topic, count=count, assignments=None) for topic, count in totals.items()
            ],
            timeout_ms=self._request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> CreatePartitionsResponse:
            answer = await self._cluster.ask(request, CreatePartitionsResponse)
            _check_controller((told.name, told.error_code) for told in answer.results)
            return answer

        for told in (await self._patiently(ask)).results:
            check(told.error_code, f"the topic {told.name!r}", told.error_message)

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Raises ClientError for the first that is refused (UNKNOWN_TOPIC_OR_PARTITION …); the others are deleted."""
        request = DeleteTopicsRequest(topic_names=list(topics), timeout_ms=self._request_timeout_ms)

        async def ask() -> DeleteTopicsResponse:
            answer = await self._cluster.ask(request, DeleteTopicsResponse, max_version=DELETED_BY_NAME)
            _check_controller((told.name, told.error_code) for told in answer.responses)
            return answer

        for told in (await self._patiently(ask)).responses:
            check(told.error_code, f"the topic {told.name!r}", told.error_message)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics except internal ones."""
        answer = await self._metadata(None)
        return sorted(told.name or "" for told in answer if include_internal or not told.is_internal)

    async def describe_topics(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Raises ClientError for the first that is refused."""
        found = {}
        for told in await self._metadata(list(topics)):
            check(told.error_code, f"the topic {told.name!r}")
            found[told.name or ""] = administration.topics.topic_description(told)
        return found

    async def _metadata(self, topics: list[str] | None) -> list[MetadataResponseTopic]:
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return (await self._patiently(lambda: self._cluster.ask(request, MetadataResponse))).topics

    # Settings.

    async def describe_configs(self, resource: ConfigResource) -> list[ConfigEntry]:
        """All settings of a topic, broker or group, by name. Raises ClientError."""
        return await administration.configs.describe_configs(self.asking, resource)

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Change single settings (IncrementalAlterConfigs); others stay. Raises ClientError (INVALID_CONFIG …)."""
        await administration.configs.alter_configs(self.asking, changes, validate_only=validate_only)

    # Groups.

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """The groups of every type that match both filters, by id."""
        return await administration.groups.list_groups(self.asking, states=states, types=types)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """A classic or consumer group. Raises ClientError (GROUP_ID_NOT_FOUND)."""
        return await administration.groups.describe_group(self.asking, group_id)

    async def describe_share_group(self, group_id: str) -> GroupDescription:
        """Raises ClientError (GROUP_ID_NOT_FOUND)."""
        return await administration.groups.describe_share_group(self.asking, group_id)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups of any type. Raises ClientError for the first that is refused (NON_EMPTY_GROUP,
        GROUP_ID_NOT_FOUND)."""
        for group_id in group_ids:
            await administration.groups.delete_group(self.asking, group_id)

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every committed offset of the group; none for a group that does not exist."""
        return await administration.groups.list_group_offsets(self.asking, group_id)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Commit for a group without members, which is created if need be. Raises ClientError (CommitFailed while it
        has members)."""
        await administration.groups.alter_group_offsets(self.asking, group_id, offsets)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Raises ClientError (GROUP_SUBSCRIBED_TO_TOPIC while members read the topic)."""
        await administration.groups.delete_group_offsets(self.asking, group_id, partitions)

    async def list_share_group_offsets(self, group_id: str) -> dict[TopicPartition, SharePartitionOffset]:
        """The start offset and lag of each share partition."""
        return await administration.groups.list_share_group_offsets(self.asking, group_id)

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises ClientError (NON_EMPTY_GROUP while the group has members)."""
        await administration.groups.alter_share_group_offsets(self.asking, group_id, offsets)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Raises ClientError (NON_EMPTY_GROUP while the group has members)."""
        await administration.groups.delete_share_group_offsets(self.asking, group_id, topics)

    # Records, and the cluster.

    async def list_offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition with at least this timestamp, None where there is none. `EARLIEST`,
        `LATEST` and `MAX_TIMESTAMP` of `odradek.client.administration.records` stand for the start, the end, and the
        record with the largest timestamp. is_committed: the end is the last stable offset."""
        return await administration.records.offsets(self.asking, timestamps_ms, is_committed=is_committed)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below these offsets; -1 stands for the high watermark. Returns the log start offsets.
        Raises ClientError (OFFSET_OUT_OF_RANGE …); records of other partitions may be deleted by then."""
        return await administration.records.delete_records(self.asking, before)

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers with their advertised addresses, the controller, and the finalized features."""
        return await administration.cluster.describe_cluster(self.asking)

    async def describe_features(self) -> dict[str, FeatureDescription]:
        """Describe what the brokers support, and the finalised level, by the name of the feature."""
        return await administration.cluster.describe_features(self.asking)

    async def update_features(
        self, levels: Mapping[str, int], kind: UpgradeType = UpgradeType.UPGRADE, *, validate_only: bool = False
    ) -> None:
        """Set the finalised levels of these features, of all or of none. Raises ClientError (INVALID_UPDATE_VERSION,
        FEATURE_UPDATE_FAILED) with the broker's reason."""
        await administration.cluster.update_features(self.asking, levels, kind, validate_only=validate_only)

    # Transactions.

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that match all filters, by id.

        longer_than_ms   since the start of the last transaction. Ids that never had one match too, as in Kafka:
                         combine it with the state Ongoing.

        Raises ClientError (UNSUPPORTED_VERSION) for a filter that the brokers do not know.
        """
        return await administration.transactions.list_transactions(
            self.asking,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            transactional_id_pattern=transactional_id_pattern,
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Raises ClientError (TRANSACTIONAL_ID_NOT_FOUND) for an unknown transactional id."""
        describe = administration.transactions.describe_transaction
        return {each: await describe(self.asking, each) for each in transactional_ids}

    async def force_terminate_transaction(self, transactional_id: str) -> None:
        """Aborts the open transaction of this transactional id, even a prepared one, and fences its owner (KIP-939).
        Use it when nobody is left who could decide. Returns when the abort is complete; the id is then as a new
        producer's.

        It does not ask an external coordinator: if that has decided to commit, the records of the transaction are lost.
        Raises ClientError (TRANSACTIONAL_ID_AUTHORIZATION_FAILED …).
        """
        await administration.transactions.fence_producer(self.asking, transactional_id)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdentity]:
        """Fences the producers of these transactional ids, and aborts what they have open, like
        `force_terminate_transaction` for each of them. Returns the producer id and epoch that each id has from
        now on.

        An id that no producer has used is created. Raises ClientError for the first that is refused; others may be
        fenced by then.
        """
        fence = administration.transactions.fence_producer
        fenced: dict[str, ProducerIdentity] = {}
        for ids in blocks(dict.fromkeys(transactional_ids), FENCED_AT_ONCE):
            found = await asyncio.gather(*(fence(self.asking, each) for each in ids), return_exceptions=True)
            for transactional_id, identity in zip(ids, found, strict=True):
                if isinstance(identity, BaseException):
                    raise identity
                fenced[transactional_id] = identity
        return fenced

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that each partition knows, idempotent and transactional ones, with their open transactions.

        broker_id   ask this broker, which may be a follower; the leader of each partition if left out

        Raises ClientError for the first partition that is refused (UNKNOWN_TOPIC_OR_PARTITION,
        TOPIC_AUTHORIZATION_FAILED).
        """
        return await administration.transactions.describe_producers(self.asking, partitions, broker_id=broker_id)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Aborts the open transaction of a producer in one partition, by writing its marker there. This is meant for a
        hanging transaction, which no coordinator will ever end; find its numbers with `describe_producers`.

        It asks no coordinator: if one knows the transaction, its other partitions and its coordinator are not told, and
        a commit would be torn. Use `fence_producers`, or `odradek transactions abort`, which checks that first.

        coordinator_epoch   as `describe_producers` returns it

        Raises ClientError (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, CLUSTER_AUTHORIZATION_FAILED,
        UNKNOWN_TOPIC_OR_PARTITION).
        """
        await administration.transactions.abort_transaction(
            self.asking,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    async def end_transaction(self, transactional_id: str, state: PreparedTxnState, *, committed: bool) -> None:
        """End a transaction that another process has prepared, by its name. Returns when it is decided so, now or
        before: it may be repeated as often as it takes, while the id begins no other transaction.

        That it returns is the only proof. Raises ProducerFenced when this transaction was not ended so, and cannot be
        any more: it ended otherwise, an operator or a newer producer has taken over, or the id has gone on. Other
        errors leave it open what happened. Nothing is asked for the empty state, which names no transaction.
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
                what = "below transaction.version 2 no pair of producer id and epoch names a single transaction"
                raise ClientError(what, ErrorCode.UNSUPPORTED_VERSION)
            answer = await self._cluster.ask_coordinator(
                transactional_id, kind, request, EndTxnResponse, min_version=END_TXN_OF_ONE_EPOCH
            )
            code = code_of(answer.error_code)
            if code in NOT_ENDED_SO:
                wanted = "committed" if committed else "aborted"
                text = f"the transaction {state} of {transactional_id!r} was not {wanted}, and cannot be any more"
                raise ProducerFenced(f"{text}: {code.name}", code)
            self.asking.check_coordinator(kind, transactional_id, answer.error_code)

        await self._patiently(end)

    async def end_transactions(self, ends: Iterable[tuple[str, PreparedTxnState, bool]]) -> list[ClientError | None]:
        """`end_transaction` for all of them at once: (transactional id, state, whether to commit). What became of each,
        in their order: None, or what `end_transaction` raises."""

        async def end(transactional_id: str, state: PreparedTxnState, committed: bool) -> ClientError | None:
            try:
                await self.end_transaction(transactional_id, state, committed=committed)
            except ClientError as error:
                return error
            return None

        return await asyncio.gather(*(end(*each) for each in ends))


def _check_controller(topics: Iterable[tuple[str | None, int]]) -> None:
    """Raises RetriableError where a topic was refused because the controller has moved: the next one is asked."""
    for name, error_code in topics:
        if error_code == ErrorCode.NOT_CONTROLLER.value:
            check(error_code, f"the topic {name!r}")
