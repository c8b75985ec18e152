"""TxnShareAcknowledge (KIP-1289): acknowledgements of a share group in the transaction of a producer.

    checks of the request → member → load what is not in memory → register `__share_group_state`-N with the transaction
                          → check every partition → acknowledge in all, which is stored → answer

After a restart the request may be the first one that needs the share partition: a producer repeats it, because it has
lost the answer. Nothing becomes pending before registration: otherwise a transaction could end without anyone telling
the share partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.request import node_endpoints
from odradek.broker.handlers.shares.share_session import LONGEST_MEMBER_ID
from odradek.broker.runtime.delayed import Deferred, NowOrLater, all_of, once
from odradek.broker.shares.core.in_flight import Acknowledgement
from odradek.broker.shares.core.pending_records import check_txn_form
from odradek.broker.shares.core.state import PendingTransaction, SharePartitionKey
from odradek.broker.shares.leader.acknowledging import DONE, AcknowledgeResult
from odradek.broker.shares.leader.live_partition import CODES, PendingWrite, SharePartitionPhase
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.txn_share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    TxnShareAcknowledgeResponse,
    TxnShareAcknowledgeTopicResponse,
)
from odradek.protocol.topic_partition import SHARE_GROUP_STATE, PartitionCodes, TopicIdPartition

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest

NOT_ATTEMPTED: Final = AcknowledgeResult(
    ErrorCode.OPERATION_NOT_ATTEMPTED, "Nothing was staged: another partition was refused."
)
# Refusals to store something that concern the whole request, since its transaction is over, or sealed.
OF_THE_TRANSACTION: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
REGISTRATION_RETRY_MS: Final = 20
REGISTRATION_PATIENCE_MS: Final = 100  # while the transaction before is being completed
Named = Mapping[TopicIdPartition, Sequence[Acknowledgement]]
Results = Mapping[TopicIdPartition, AcknowledgeResult]


def txn_share_acknowledge(
    request: TxnShareAcknowledgeRequest, context: RequestContext, broker: Broker
) -> NowOrLater[TxnShareAcknowledgeResponse]:
    """TxnShareAcknowledge (key 93), version 0: accepts or rejects records of a share group in a producer's transaction.

    Served while share.version and transaction.version are at least 2. Needs WRITE on the transactional id, READ on the
    group and on each topic. Pending in all partitions of the request or in none; answered when that is stored. The
    acknowledgements count, or never did, when the transaction ends. Source: docs/spec/share-groups.md#s1-9, #s5-3.
    """
    broker.shares.require_transactions()
    if not request.transactional_id or not request.group_id or not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    named = acknowledgements_of(request)
    refused = refusals(named, context, broker)
    if refused:
        return response_of({each: refused.get(each, NOT_ATTEMPTED) for each in named}, context, broker)
    wanted = {each: acknowledgements for each, acknowledgements in named.items() if acknowledgements}
    if not wanted:
        return response_of(dict.fromkeys(named, DONE), context, broker)
    answer = TxnAcknowledgement(request, wanted, broker).begin()
    return once(answer, lambda results: response_of(_of_all(named, results), context, broker))


def _of_all(named: Named, results: Results) -> Results:
    """Results of the partitions that named no acknowledgements, too."""
    others = DONE if all(each.code is ErrorCode.NONE for each in results.values()) else NOT_ATTEMPTED
    return {each: results.get(each, others) for each in named}


def acknowledgements_of(request: TxnShareAcknowledgeRequest) -> Named:
    """Joins entries that name the same partition."""
    named: dict[TopicIdPartition, list[Acknowledgement]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            named.setdefault(TopicIdPartition(topic.topic_id, partition.partition_index), []).extend(
                Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
                for each in partition.acknowledgement_batches
            )
    return named


def refusals(named: Named, context: RequestContext, broker: Broker) -> dict[TopicIdPartition, AcknowledgeResult]:
    """Checks rows 5 to 9. Raises TOPIC_AUTHORIZATION_FAILED, which concerns the whole request."""
    image = broker.metadata.image
    topics = {topic_id: image.topics_by_id.get(topic_id) for topic_id, _ in named}
    for topic in topics.values():
        if topic is not None:
            context.require(Operation.READ, ResourceType.TOPIC, topic.name)
    refused: dict[TopicIdPartition, AcknowledgeResult] = {}
    for each, acknowledgements in named.items():
        topic = topics[each.topic_id]
        try:
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if not 0 <= each.partition < len(topic.partitions) or topic.partitions[each.partition] is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            placed = topic.partitions[each.partition]
            if placed.leader != broker.partitions.node_id:
                refused[each] = AcknowledgeResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, placed)
                continue
            check_txn_form(acknowledgements)
        except KafkaError as error:
            refused[each] = AcknowledgeResult(error.code, error.message)
    return refused


class TxnAcknowledgement:
    """One request whose partitions have passed the checks that need no coordinator, each with acknowledgements.

    Source: docs/spec/share-groups.md#s5-3 rows 10 to 14 and T8, #s5-4, #s5-5.
    """

    def __init__(self, request: TxnShareAcknowledgeRequest, wanted: Named, broker: Broker) -> None:
        assert request.transactional_id is not None
        self._group_id = request.group_id
        self._member_id = request.member_id
        self._member_epoch = request.member_epoch
        self._transaction = PendingTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
        self._wanted = wanted
        self._broker = broker
        self._keys = {each: SharePartitionKey(request.group_id, *each) for each in wanted}
        self._patient_until_ms = broker.clock.now_ms() + REGISTRATION_PATIENCE_MS

    def begin(self) -> NowOrLater[Results]:
        """Raises KafkaError, or fails with it, where the request is refused as a whole."""
        self._require_member()
        if all(self._is_loaded(key) for key in self._keys.values()):  # nearly always
            return self.join()
        answers: list[NowOrLater[bool]] = [self._loading(each) for each in self._keys]
        return once(all_of(answers, lambda _, error: error, list), self._loaded)

    def join(self) -> NowOrLater[Results]:
        """Has the transaction before anything waits for it."""
        return once(self.register(), lambda _: self.acknowledge())

    def _require_member(self) -> None:
        """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; what a group coordinator says that cannot be asked.

        No other request of a share session needs membership (docs/spec/share-groups.md#s5-3).
        """

        def epoch_of(core: GroupCore) -> int | None:
            group = core.share_group(self._group_id)
            member = None if group is None else group.members.get(self._member_id)
            return None if member is None else member.epoch

        epoch = self._broker.groups.shards.of_key(self._group_id).look(epoch_of)
        if epoch is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member is not known to the share group.")
        if epoch != self._member_epoch:
            message = f"The member has epoch {epoch}, not {self._member_epoch}."
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, message)

    def _is_loaded(self, key: SharePartitionKey) -> bool:
        live = self._broker.shares.find(key)
        return live is not None and live.phase is SharePartitionPhase.ACTIVE

    def _loading(self, partition: TopicIdPartition) -> Deferred[bool]:
        try:
            placed = self._broker.partitions.get_by_id(*partition)
        except KafkaError as error:
            refused: Deferred[bool] = Deferred()
            refused.fail(error)
            return refused
        return self._broker.shares.find_or_load(self._keys[partition], placed).when_loaded()

    def _loaded(self, answers: Sequence[bool | KafkaError]) -> NowOrLater[Results]:
        refused = {
            each: AcknowledgeResult(answer.code, answer.message)
            for each, answer in zip(self._keys, answers, strict=True)
            if isinstance(answer, KafkaError)
        }
        return self._all_refused(refused) if refused else self.join()

    def _all_refused(self, refused: Results) -> Results:
        return {each: refused.get(each, NOT_ATTEMPTED) for each in self._keys}

    def register(self) -> NowOrLater[bool]:
        """Adds the partitions of `__share_group_state` to the transaction, which starts it if need be."""
        transactional_id, producer_id, producer_epoch = self._transaction
        assert transactional_id is not None
        coordinator = self._broker.share_coordinator
        answer = self._broker.transactions.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            {(SHARE_GROUP_STATE, coordinator.partition_for(key)) for key in self._keys.values()},
            verify_only=False,
            asked_version=2,
        )
        return once(answer, self._registered)

    def _registered(self, codes: PartitionCodes) -> NowOrLater[bool]:
        code = next((each for each in codes.values() if each is not ErrorCode.NONE), ErrorCode.NONE)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._broker.clock.now_ms() < self._patient_until_ms:
            waited: Deferred[bool] = Deferred()
            self._broker.timers.after(REGISTRATION_RETRY_MS, lambda: waited.resolve(True))
            return waited.then(lambda _: self.register())
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return True

    def acknowledge(self) -> NowOrLater[Results]:
        """Checks all again, since the transaction coordinator's answer may have taken its time, then acknowledges."""
        shares = self._broker.shares
        shares.require_transactions()
        _, producer_id, producer_epoch = self._transaction
        self._broker.seals.check(producer_id, producer_epoch)
        for key in self._keys.values():
            if self._broker.share_coordinator.shard_for(key).core.has_ended(producer_id, producer_epoch):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        refused = {each: refusal for each in self._keys if (refusal := self._refusal(each)) is not None}
        if refused:
            return self._all_refused(refused)
        must_sync = producer_id in self._broker.two_phase
        writes = []
        for each, acknowledgements in self._wanted.items():
            live = shares.find(self._keys[each])
            assert live is not None
            writes.append(
                live.make_pending(
                    self._member_id, self._member_epoch, acknowledgements, self._transaction, must_sync=must_sync
                )
            )
        return all_of(
            [each.stored for each in writes], lambda _, error: error, lambda answers: self._stored(writes, answers)
        )

    def _refusal(self, partition: TopicIdPartition) -> AcknowledgeResult | None:
        live = self._broker.shares.find(self._keys[partition])
        try:
            if live is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            live.require_acquired(self._member_id, self._wanted[partition], self._transaction)
        except KafkaError as error:
            return AcknowledgeResult(error.code, error.message)
        return None

    def _stored(self, writes: Sequence[PendingWrite], answers: Sequence[bool | KafkaError]) -> Results:
        """Undoes what was stored if the rest was not. Even after a restart that is no commit; its producer must abort.

        raises  INVALID_TXN_STATE if a marker has ended the transaction meanwhile; the transaction coordinator's code if
                it was sealed meanwhile
        """
        errors = [each if isinstance(each, KafkaError) else None for each in answers]
        has_failed = any(errors)
        results: dict[TopicIdPartition, AcknowledgeResult] = {}
        for partition, (live, write, _), error in zip(self._keys, writes, errors, strict=True):
            if error is not None:
                results[partition] = AcknowledgeResult(
                    CODES.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message
                )
            else:
                results[partition] = NOT_ATTEMPTED if has_failed else DONE
            if write is None:
                continue
            if error is not None:
                live.not_made_pending(write, error)
            elif has_failed:
                live.undo_pending(write)
            else:
                live.made_pending(write)
        for error in errors:
            if error is not None and error.code in OF_THE_TRANSACTION:
                raise KafkaError(error.code)
        return results


def response_of(results: Results, context: RequestContext, broker: Broker) -> TxnShareAcknowledgeResponse:
    topics: dict[bytes, TxnShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, None] = {}
    for (topic_id, index), result in results.items():
        data = PartitionData(partition_index=index, error_code=result.code.value, error_message=result.message)
        if result.leader is not None:
            leader_id = -1 if result.leader.leader is None else result.leader.leader
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=result.leader.leader_epoch)
            leaders[leader_id] = None
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = TxnShareAcknowledgeTopicResponse(topic_id=topic_id)
        topic.partitions.append(data)
    return TxnShareAcknowledgeResponse(
        responses=list(topics.values()),
        node_endpoints=(
            node_endpoints(NodeEndpoint, broker.metadata.image, leaders, context.connection) if leaders else []
        ),
    )
