"""One TxnShareAcknowledge after its checks: membership, registration with the transaction, acknowledging.

    require_member → load what is not in memory → register `__share_group_state`-N with the transaction
                   → check every partition → acknowledge in all → answer

After a restart the request may be the first one that needs the share partition: a producer repeats it, because it has
lost the answer. Nothing becomes pending before registration: otherwise a transaction could end without anyone telling
the share partitions. All partitions of the request are pending, or none.
Source: docs/spec/share-groups.md#s5-3 rows 10 to 14 and T8, #s5-4, #s5-5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.broker.runtime.delayed import Deferred, all_of
from odradek.broker.shares.core.state import PendingTransaction, SharePartitionKey
from odradek.broker.shares.leader.acknowledging import DONE, Result
from odradek.broker.shares.leader.live_partition import CODES, Phase
from odradek.broker.shares.leader.membership import require_member
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.shares.core.acknowledgements import Acknowledgement
    from odradek.broker.shares.leader.live_partition import PendingWrite
    from odradek.broker.shares.leader.shares import ShareBroker
    from odradek.protocol.topic_partition import PartitionCodes, TopicIdPartition

NOT_ATTEMPTED: Final = Result(ErrorCode.OPERATION_NOT_ATTEMPTED, "Nothing was staged: another partition was refused.")
REGISTRATION_RETRY_MS: Final = 20
REGISTRATION_PATIENCE_MS: Final = 100  # while the transaction before is being completed

Results = Mapping["TopicIdPartition", Result]


@dataclass(frozen=True, slots=True)
class Acknowledger:
    """Who acknowledges. `transaction.transactional_id` is given."""

    group_id: str
    member_id: str
    member_epoch: int
    transaction: PendingTransaction


class TxnAcknowledgement:
    """The partitions have passed the checks that need no coordinator, and none is without acknowledgements."""

    def __init__(
        self,
        member: Acknowledger,
        acknowledgements: Mapping[TopicIdPartition, Sequence[Acknowledgement]],
        broker: ShareBroker,
    ) -> None:
        self.results: Deferred[Results] = Deferred()  # fails where the request is refused as a whole
        self._member = member
        self._acknowledgements = acknowledgements
        self._broker = broker
        self._keys = {each: SharePartitionKey(member.group_id, *each) for each in acknowledgements}
        self._patient_until_ms = broker.clock.now_ms() + REGISTRATION_PATIENCE_MS

    def begin(self) -> None:
        """Raises KafkaError where the member is not who it says it is."""
        member = self._member
        require_member(self._broker.groups, member.group_id, member.member_id, member.member_epoch)
        self._load()

    # Loading.

    def _load(self) -> None:
        if all(self._is_loaded(key) for key in self._keys.values()):  # nearly always
            self._register()
            return
        loading = all_of([self._loading(each) for each in self._keys], lambda _, error: error, list)
        if isinstance(loading, Deferred):
            loading.when_done(lambda told: self._guarded(lambda: self._loaded(told.outcome())))
        else:
            self._loaded(loading)

    def _is_loaded(self, key: SharePartitionKey) -> bool:
        live = self._broker.shares.find(key)
        return live is not None and live.phase is Phase.ACTIVE

    def _loading(self, partition: TopicIdPartition) -> KafkaError | Deferred[KafkaError | None] | None:
        try:
            live = self._broker.shares.find_or_load(
                self._keys[partition], self._broker.partitions.get_by_id(*partition)
            )
        except KafkaError as error:
            return error
        return _error_in(live.when_loaded())

    def _loaded(self, errors: Sequence[KafkaError | None]) -> None:
        pairs = zip(self._keys, errors, strict=True)
        refused = {each: Result(error.code, error.message) for each, error in pairs if error is not None}
        if refused:
            self.results.resolve({each: refused.get(each, NOT_ATTEMPTED) for each in self._keys})
        else:
            self._register()

    # Registration.

    def _register(self) -> None:
        coordinator = self._broker.share_coordinator
        transactional_id, producer_id, producer_epoch = self._member.transaction
        assert transactional_id is not None
        answer = self._broker.transactions.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            {(SHARE_GROUP_STATE, coordinator.partition_for(key.coordinator_key)) for key in self._keys.values()},
            verify_only=False,
            asked_version=2,
        )
        if isinstance(answer, Deferred):
            answer.when_done(lambda told: self._guarded(lambda: self._registered(told.outcome())))
        else:
            self._registered(answer)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.results.fail(error)

    def _registered(self, codes: PartitionCodes) -> None:
        code = next((each for each in codes.values() if each is not ErrorCode.NONE), ErrorCode.NONE)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._broker.clock.now_ms() < self._patient_until_ms:
            self._broker.timers.after(REGISTRATION_RETRY_MS, lambda: self._guarded(self._register))
            return
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        self._acknowledge()

    # Acknowledging.

    def _acknowledge(self) -> None:
        """What the answer of the transaction coordinator took may have changed everything that was checked before."""
        shares = self._broker.shares
        shares.require_transactions()
        _, producer_id, producer_epoch = self._member.transaction
        for key in self._keys.values():
            shard = self._broker.share_coordinator.shard_for(key)
            if shard.core.has_ended(producer_id, producer_epoch):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        refused = {each: refusal for each in self._keys if (refusal := self._refusal(each)) is not None}
        if refused:
            self.results.resolve({each: refused.get(each, NOT_ATTEMPTED) for each in self._keys})
            return
        must_sync = producer_id in self._broker.two_phase
        pending = []
        for each, acknowledgements in self._acknowledgements.items():
            live = shares.find(self._keys[each])
            assert live is not None
            pending.append(
                live.make_pending(
                    self._member.member_id,
                    self._member.member_epoch,
                    acknowledgements,
                    self._member.transaction,
                    must_sync=must_sync,
                )
            )
        self._await(pending)

    def _refusal(self, partition: TopicIdPartition) -> Result | None:
        live = self._broker.shares.find(self._keys[partition])
        try:
            if live is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            live.require_acquired(self._member.member_id, self._acknowledgements[partition], self._member.transaction)
        except KafkaError as error:
            return Result(error.code, error.message)
        return None

    def _await(self, pending: Sequence[PendingWrite]) -> None:
        if all(each.stored is None or each.stored.is_done for each in pending):  # nearly always
            self._stored(pending, [None if each.stored is None else _error_of(each.stored) for each in pending])
            return
        answers = [None if each.stored is None else _error_in(each.stored) for each in pending]
        together = all_of(answers, lambda _, error: error, list)
        if isinstance(together, Deferred):
            together.when_done(lambda told: self._guarded(lambda: self._stored(pending, told.outcome())))
        else:
            self._stored(pending, together)

    def _stored(self, pending: Sequence[PendingWrite], errors: Sequence[KafkaError | None]) -> None:
        """Also after a restart a request that was stored in part only is no commit: its producer has to abort."""
        has_failed = any(error is not None for error in errors)
        results: dict[TopicIdPartition, Result] = {}
        for partition, (live, write, _), error in zip(self._keys, pending, errors, strict=True):
            if error is not None:
                code = CODES.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
                results[partition] = Result(code, error.message)
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
        if any(error is not None and error.code is ErrorCode.INVALID_TXN_STATE for error in errors):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        self.results.resolve(results)


def _error_in(answer: Deferred[bool]) -> KafkaError | Deferred[KafkaError | None] | None:
    """What it fails with; None: it succeeds."""
    error: Deferred[KafkaError | None] = Deferred()

    answer.when_done(lambda told: error.resolve(_error_of(told)))
    return error


def _error_of(answer: Deferred[bool]) -> KafkaError | None:
    """What it failed with, if it did."""
    try:
        answer.outcome()
    except KafkaError as error:
        return error
    return None
