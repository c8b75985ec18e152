"""The two-phase commit of a sink's batches (docs/spec/spark.md#s2). Independent of Spark.

Each task prepares a transaction under a transactional id that is used only once, and then votes. The driver records its
decision in the ledger and then ends the transactions. One rule makes this safe: before a process aborts other
processes' transactions, it lists their ids in the ledger as doomed, under a lease. A driver that finds one of its own
transactions among the doomed ids can no longer decide the batch.

If the ledger lacks records that this driver has written, it is an older copy or a different topic, so the driver
decides nothing.

| state of the ledger when batch `b` is to be committed | verdict |
|---|---|
| a later batch was decided | BEHIND: the checkpoint is older than the output |
| `b` was decided | DECIDED, by an earlier call or by another driver: finish it, abort this copy |
| one of the votes' ids is doomed | DOOMED: another process may be aborting it, so this copy cannot be decided |
| none of these | OPEN: decide |
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeVar

from odradek.client import Admin, ClientError, PreparedTxnState, ProducerFenced, TransactionDescription
from odradek.protocol.errors import ErrorCode
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import (
    DIGEST_OF_ALL_COLUMNS,
    DIGEST_OF_KEYS_AND_VALUES,
    EMPTY,
    LEDGER_TOPIC,
    ONGOING,
    UNDECIDED,
    LeaseLost,
    Ledger,
    LedgerEntry,
    PreparedPart,
    read_entries,
    undecided_entry,
)
from odradek.spark.names import Sink, sink_of, task_of
from odradek.spark.steps import CommitStep, Observe, observe_nothing

# The broker forgets a transactional id an hour after its transaction ended (odradek.transactional.id.expiration.rules).
ID_EXPIRATION_MS = 3_600_000
EXPIRED_AT_A_TIME = 10
LEASE_PAUSES_S = (0.0, 0.2, 0.5, 1.0)  # upper limits of the random pauses before taking the lease again
DIGEST_MASK = 2**64 - 1  # digests are added modulo 2^64
T = TypeVar("T")
_log = logging.getLogger(__name__)


class SinkError(Exception):
    """A batch could not be committed as intended."""


class CheckpointBehind(SinkError):
    """The ledger contains a later batch, so the checkpoint is an old copy and the output already contains the rows that
    the query is about to write."""


class LedgerBehind(SinkError):
    """The ledger lacks a batch that this driver has decided, because the broker was restored from an older copy or the
    topic was deleted and created again. Rows of committed batches may be lost too."""


class VotesDoomed(SinkError):
    """A recovery or an operator has aborted transactions of this batch or is aborting them. Nothing was decided, and
    the batch must be written again."""


class ReplayDiffers(SinkError):
    """The batch was decided earlier with a different number of rows, or a batch write with this key had different rows.
    The first decision stands."""


class LeaseContested(SinkError):
    """Other processes kept taking the sink's lease."""


class LeftOpen(SinkError):
    """A write failed and some of its tasks' transactions could not be ended. They delay read_committed consumers."""


class NotExactlyOnce(SinkError):
    """An operator aborted a transaction of a decided batch, so that transaction's rows are lost."""


@dataclass(frozen=True, slots=True)
class Vote:
    """A task's promise that its rows have been written and flushed in a prepared transaction that survives any crash.

    digest        the digest of all columns. It does not depend on the order of the rows, so the tasks' digests can be
                  added.
    first_digest  the digest of version DIGEST_OF_KEYS_AND_VALUES. Only batch writes with a key compute it, because the
                  ledger keeps the keys of earlier releases for the duration of `idempotencyKeyRetention`.
    """

    query: str
    run: str
    partition: int
    attempt: int
    transactional_id: str
    state: PreparedTxnState
    rows: int
    size_bytes: int
    digest: int = 0
    first_digest: int | None = None

    @property
    def part(self) -> PreparedPart:
        return PreparedPart(self.transactional_id, self.state)


class BatchVerdict(Enum):
    BEHIND = auto()
    DECIDED = auto()
    DOOMED = auto()
    OPEN = auto()


def judge(entry: LedgerEntry, batch: int, votes: Iterable[Vote]) -> BatchVerdict:
    """Returns the verdict on committing `batch`, following the table in the module's docstring."""
    if entry.batch > batch:
        return BatchVerdict.BEHIND
    if entry.batch == batch:
        return BatchVerdict.DECIDED
    doomed = set(entry.doomed)
    return BatchVerdict.DOOMED if any(vote.transactional_id in doomed for vote in votes) else BatchVerdict.OPEN


def decision(entry: LedgerEntry, batch: int, votes: Sequence[Vote], open_ids: Iterable[str], at_ms: int) -> LedgerEntry:
    """Returns the ledger record that decides the batch. Open transactions without a vote become doomed. Ids doomed
    earlier are dropped, because the new batch number already ensures that their transactions cannot be committed."""
    mine = {vote.transactional_id for vote in votes}
    return replace(
        entry,
        run=votes[0].run if votes else entry.run,
        batch=batch,
        parts=tuple(vote.part for vote in votes),
        doomed=tuple(sorted(set(open_ids) - mine)),
        rows=sum(vote.rows for vote in votes),
        digest=sum(vote.digest for vote in votes) & DIGEST_MASK,
        digest_version=DIGEST_OF_ALL_COLUMNS,
        at_ms=at_ms,
        is_finished=False,
    )


def recovery(entry: LedgerEntry, open_ids: Iterable[str]) -> LedgerEntry:
    """Returns the ledger record to write before open transactions are aborted. Their ids become doomed. Ids doomed
    earlier remain doomed, because no batch is decided."""
    decided = {part.transactional_id for part in entry.parts}
    return replace(entry, doomed=tuple(sorted(set(entry.doomed) | (set(open_ids) - decided))))


def futile_ids(entry: LedgerEntry, open_ids: Iterable[str]) -> set[str]:
    """Returns the open transactions that no driver can commit any more, because they belong to an earlier batch or the
    ledger has decided their batch without them."""
    decided = {part.transactional_id for part in entry.parts}
    tasks = {each: task_of(each) for each in set(open_ids) - decided}
    return {each for each, task in tasks.items() if task is not None and task.batch <= entry.batch}


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def digest_of(votes: Sequence[Vote], version: int) -> int | None:
    """Adds up the votes' digests of this version. Returns None if a vote has no digest of this version, or if the
    version comes from a later release."""
    match version:
        case _ if version == DIGEST_OF_ALL_COLUMNS:
            digests: list[int | None] = [vote.digest for vote in votes]
        case _ if version == DIGEST_OF_KEYS_AND_VALUES:
            digests = [vote.first_digest for vote in votes]
        case _:
            return None
    known = [digest for digest in digests if digest is not None]
    return sum(known) & DIGEST_MASK if len(known) == len(digests) else None


class TwoPhaseSink:
    """The driver's side of one sink. Only one call may run at a time. A call can be repeated no matter where it
    crashed."""

    def __init__(
        self,
        brokers: Brokers,
        sink: Sink,
        *,
        observe: Observe = observe_nothing,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._brokers = brokers
        self._sink = sink
        self._observe = observe
        self._clock_ms = clock_ms
        self._ledger = Ledger(brokers, sink, observe)
        self._decided = UNDECIDED  # the last batch seen by this driver in the ledger

    async def close(self) -> None:
        """Releases the lease. Prepared transactions remain prepared."""
        # Without the lease, another process may erase an expired key, so this driver's knowledge of the ledger may
        # become outdated.
        self._decided = UNDECIDED
        await self._ledger.release()

    async def commit(
        self, votes: Sequence[Vote], batch: int, *, kept_ms: int | None = None, run: str | None = None
    ) -> None:
        """Decides the batch and returns once its transactions are committed. If it raises SinkError or ClientError,
        call `abort`, which finishes the batch if it was decided after all.

        kept_ms  for a batch write with a key: how long the ledger keeps the key. A repeated write must have the same
                 rows, whereas a repeated batch of a stream may have different rows, for example with rand().
        run      for a run that has no more batches: the commit seals the run, so that a task that lost to another
                 attempt cannot open a transaction afterwards. In a stream, the next batch ends these transactions.
        """
        await self._observe(CommitStep.BEGUN, 0)
        try:
            await self._commit(await self._ledger.leased_entry(), votes, batch, kept_ms, run)
        except (LeaseLost, LedgerBehind):  # the record in memory may be out of date

            async def repeat_commit() -> None:
                await self._commit(await self._ledger.acquire_lease(), votes, batch, kept_ms, run)

            await self._under_lease(repeat_commit)
        await self._observe(CommitStep.FINISHED, 0)

    async def abort(self, votes: Sequence[Vote], batch: int, run: str | None = None) -> bool:
        """Ends a batch whose `commit` failed or was never called. Aborts its transactions, or finishes the batch if
        `commit` failed after the decision. Returns whether the decision named transactions of this call, which means
        that their rows are in the output.

        run  the run to seal, so that none of its tasks can open a transaction afterwards. Every transaction opened by
             its tasks is ended, whether or not the tasks have voted.

        Raises LeftOpen, which names the transactions that could not be ended and the command that ends them. The call
        can be repeated.
        """
        voted = {vote.transactional_id for vote in votes}
        try:
            async with self._brokers.admin() as admin:
                if run is not None:
                    await self._seal(admin, run)
                return await self._under_lease(lambda: self._abort_opened(admin, voted, batch, run))
        except (ClientError, LeaseContested, OSError) as error:
            raise self._left_open(voted, run, error) from error

    async def recover(self, run: str | None = None) -> LedgerEntry:
        """Finishes the decided batch and aborts the sink's other open transactions, or only those of `run`. Returns the
        ledger's record.

        Call this for a query that is no longer running. If the query is still running, its next commit fails, and its
        batch is written again.
        """
        return await self._under_lease(lambda: self._recover(run))

    async def forget(self) -> None:
        """Removes the sink from the ledger. Call this for a sink that will not write again, such as a batch write
        without a key, which would not be recognised if it were repeated."""
        if (await self._ledger.leased_entry()).batch > UNDECIDED:
            await self._ledger.erase()
            self._decided = UNDECIDED

    async def forget_expired(self) -> None:
        """Removes some of the sinks with expired keys from the ledger, oldest first. Takes each sink's lease before
        removing the sink."""
        now_ms = self._clock_ms()
        entries = [each for each in (await read_entries(self._brokers)).values() if each.is_expired(now_ms)]
        for entry in sorted(entries, key=lambda each: each.at_ms)[:EXPIRED_AT_A_TIME]:
            ledger = Ledger(self._brokers, sink_of(entry.sink))
            try:
                if (await ledger.acquire_lease()).is_expired(now_ms):
                    await ledger.erase()
            finally:
                await ledger.release()

    async def open_ids(self, run: str | None = None) -> list[str]:
        """Returns the ids of the open transactions of the sink's tasks, or only of the tasks in `run`. Does not take
        the lease."""
        async with self._brokers.admin() as admin:
            return await self._open_ids(admin, run)

    async def _recover(self, run: str | None) -> LedgerEntry:
        entry = await self._ledger.acquire_lease()
        async with self._brokers.admin() as admin:
            doomed = recovery(entry, await self._open_ids(admin, run))
            if doomed != entry:
                await self._ledger.write(doomed)
            await self._finish(admin, doomed)
        return doomed

    async def _under_lease(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs `work`, which takes the lease. Runs `work` again if another process takes the lease in the meantime. The
        pauses are random, so that two processes do not keep taking the lease from each other. Raises LeaseContested."""
        for pause_s in LEASE_PAUSES_S:
            try:
                return await work()
            except LeaseLost:
                await asyncio.sleep(random.uniform(0, pause_s))
        try:
            return await work()
        except LeaseLost as error:
            tries = len(LEASE_PAUSES_S) + 1
            raise LeaseContested(f"{self._sink.name}: the lease was lost {tries} times: {error}") from error

    async def _abort_opened(self, admin: Admin, voted: set[str], batch: int, run: str | None) -> bool:
        opened = voted if run is None else await self._unended_ids(admin, run)
        if not (opened or voted):
            return False
        entry = await self._ledger.acquire_lease()
        doomed = recovery(entry, opened)
        if doomed != entry:
            await self._ledger.write(doomed)
        if entry.batch >= batch:
            await self._finish(admin, doomed)
            return any(part.transactional_id in opened | voted for part in entry.parts)
        await self._abort(admin, doomed.doomed)
        if doomed.doomed:
            await self._note_aborted(doomed)
        return False

    async def _note_aborted(self, entry: LedgerEntry) -> None:
        """Removes the doomed ids from the ledger once their transactions have ended. The ids are no longer needed,
        because a commit checks that its transactions are open before it decides. If they remained, the record would
        grow whenever a batch failed repeatedly."""
        try:
            if entry.batch == UNDECIDED:
                await self._ledger.erase()
            else:
                await self._ledger.write(replace(entry, doomed=()))
        except LeaseLost as error:
            _log.info("%s: the ledger still lists aborted transactions: %s", entry.sink, error)

    async def _seal(self, admin: Admin, run: str) -> None:
        """Registers the run's seal with the coordinator. A task looks for the seal after registering its own
        transactional id and before opening a transaction. So either the task finds the seal, or a process that seals
        the run and then lists the run's ids finds the task."""
        await admin.force_terminate_transaction(self._sink.seal_id(run))

    async def _unended_ids(self, admin: Admin, run: str) -> set[str]:
        """Returns the transactional ids of the run's tasks that have a transaction or can still begin one."""
        listed = await admin.list_transactions(
            states=[ONGOING, EMPTY], transactional_id_pattern=self._sink.pattern(run)
        )
        return {each.transactional_id for each in listed}

    def _left_open(self, transactional_ids: Collection[str], run: str | None, error: BaseException) -> LeftOpen:
        begin = self._sink.name if run is None else self._sink.task_prefix(run)
        named = ", ".join(sorted(transactional_ids)) or f"all open transactions whose ids begin with {begin}"
        return LeftOpen(
            f"transactions of {self._sink.name} could not be ended: {named}: {error}. Until these transactions are"
            " ended, readers of committed records wait for them. To end them, run: odradek spark recover"
            f" {self._sink.name} --bootstrap-server {self._brokers.bootstrap_servers}"
        )

    async def _require_open(self, admin: Admin, votes: Iterable[Vote], open_ids: Collection[str], where: str) -> None:
        """Raises VotesDoomed if a transaction has already ended. Deciding the batch would lose that transaction's
        rows."""
        for vote in votes:
            name = vote.transactional_id
            if name not in open_ids and await _state_of(admin, name) != ONGOING:
                raise VotesDoomed(
                    f"{where}: the transaction {vote.state} of {name!r} was ended by a recovery or an operator"
                    " before the batch was decided; the batch must be written again"
                )

    async def _commit(
        self, entry: LedgerEntry, votes: Sequence[Vote], batch: int, kept_ms: int | None, run: str | None
    ) -> None:
        where = f"batch {batch} of {self._sink.name}"
        if entry.batch < self._decided:
            has = "contains no batch" if entry.batch == UNDECIDED else f"ends with batch {entry.batch}"
            raise LedgerBehind(
                f"{where}: batch {self._decided} was committed, but the ledger {LEDGER_TOPIC} {has}: the broker was"
                " restored from an older copy, or the topic was created again, so the output may lack committed"
                " rows. Restore the newest copy of the broker, or a checkpoint that is no newer than the broker's data"
            )
        self._decided = max(self._decided, entry.batch)
        if entry.is_expired(self._clock_ms()):
            entry = replace(undecided_entry(self._sink), doomed=entry.doomed)
        async with self._brokers.admin() as admin:
            if run is not None:
                await self._seal(admin, run)
            match judge(entry, batch, votes):
                case BatchVerdict.BEHIND:
                    raise CheckpointBehind(
                        f"{where}: batch {entry.batch} is already committed, so the checkpoint is an older copy."
                        " Restore the newest checkpoint, or start a new checkpoint with other starting offsets"
                    )
                case BatchVerdict.DECIDED:
                    own = {vote.transactional_id for vote in votes}
                    if run is not None:
                        own |= await self._unended_ids(admin, run)
                    doomed = recovery(entry, futile_ids(entry, await self._open_ids(admin)) - own)
                    if doomed != entry:
                        await self._ledger.write(doomed)
                    await self._finish(admin, doomed)
                    await self._abort(admin, own - {part.transactional_id for part in entry.parts})
                    await self._note_finished(doomed)
                    self._compare(entry, votes, where, is_keyed=kept_ms is not None)
                case BatchVerdict.DOOMED:
                    raise VotesDoomed(f"{where}: a recovery aborts its transactions; the batch must be written again")
                case BatchVerdict.OPEN:
                    open_ids = set(await self._open_ids(admin))
                    await self._require_open(admin, votes, open_ids, where)
                    if run is not None:
                        open_ids |= await self._unended_ids(admin, run)
                    if not votes and not open_ids and kept_ms is None:
                        return  # nothing to commit, abort or record; a replay would reach the same result
                    await self._observe(CommitStep.LISTED, 0)
                    now_ms = self._clock_ms()
                    expires_ms = None if kept_ms is None else now_ms + kept_ms
                    decided = replace(decision(entry, batch, votes, open_ids, now_ms), expires_ms=expires_ms)
                    await self._ledger.write(decided)
                    self._decided = batch
                    await self._observe(CommitStep.DECIDED, 0)
                    await self._finish(admin, decided)
                    await self._observe(CommitStep.ENDED, 0)
                    await self._note_finished(decided)

    async def _note_finished(self, entry: LedgerEntry) -> None:
        """Records that the batch has ended, so that a late replay need not look up its transactions. Also drops the
        doomed ids, because their transactions have ended. The batch is committed even if this record is not written."""
        finished = replace(entry, is_finished=True, doomed=())
        if finished == entry:
            return
        try:
            await self._ledger.write(finished)
        except LeaseLost as error:
            _log.info(
                "%s: batch %d is finished, but this could not be recorded in the ledger: %s",
                entry.sink,
                entry.batch,
                error,
            )

    async def _finish(self, admin: Admin, entry: LedgerEntry) -> None:
        """Commits the decided transactions, and then aborts the doomed ones. As long as the broker knows a
        transactional id, only a response without an error proves that its transaction is committed."""
        parts = () if entry.is_finished else entry.parts
        results = await asyncio.gather(
            *(self._commit_part(admin, entry, part, number) for number, part in enumerate(parts)),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await self._abort(admin, entry.doomed)

    async def _commit_part(self, admin: Admin, entry: LedgerEntry, part: PreparedPart, number: int) -> None:
        await self._observe(CommitStep.ENDING, number)
        where = self._sink.name
        try:
            await admin.end_transaction(part.transactional_id, part.state, committed=True)
        except ProducerFenced as error:
            age_ms = self._clock_ms() - entry.at_ms
            if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and age_ms >= ID_EXPIRATION_MS:
                # The broker does not forget prepared transactions, so this transaction has ended, and the driver that
                # ended it did not record that.
                _log.warning(
                    "%s: batch %d was decided %d minutes ago, and the broker no longer knows %r; the batch counts"
                    " as committed",
                    where,
                    entry.batch,
                    age_ms // 60_000,
                    part.transactional_id,
                )
                return
            raise NotExactlyOnce(
                f"{where}: a batch was decided, but {part.state} of {part.transactional_id!r} was ended by another"
                f" client, and its rows are lost: {error}"
            ) from error

    async def _abort(self, admin: Admin, transactional_ids: Iterable[str]) -> None:
        """Aborts as many of the transactions as possible. Raises LeftOpen with the names of the remaining
        transactions."""
        ids = list(transactional_ids)
        results = await asyncio.gather(*(_abort_one(admin, each) for each in ids), return_exceptions=True)
        failed = {each: result for each, result in zip(ids, results, strict=True) if result is not None}
        for error in failed.values():
            if not isinstance(error, ClientError | OSError):
                raise error
        for error in failed.values():
            raise self._left_open(failed, None, error) from error

    def _compare(self, entry: LedgerEntry, votes: Sequence[Vote], where: str, *, is_keyed: bool) -> None:
        rows = sum(vote.rows for vote in votes)
        if rows != entry.rows:
            raise ReplayDiffers(f"{where} was committed with {entry.rows} rows, but its replay has {rows}")
        digest = digest_of(votes, entry.digest_version)
        if digest is None:
            _log.info(
                "%s: the rows of the replay cannot be compared, because another release computed the digest", where
            )
            return
        if digest == entry.digest:
            return
        if is_keyed:
            raise ReplayDiffers(
                f"{where} was committed with other rows than those that are now written under the same key"
            )
        _log.warning(
            "%s was committed with other rows than its replay has: the query is not deterministic, or its input"
            " has changed. The committed rows remain.",
            where,
        )

    async def _open_ids(self, admin: Admin, run: str | None = None) -> list[str]:
        listed = await admin.list_transactions(states=[ONGOING], transactional_id_pattern=self._sink.pattern(run))
        return [each.transactional_id for each in listed]


async def _described(admin: Admin, transactional_id: str) -> TransactionDescription | None:
    """Describes a transaction, or returns None if the coordinator does not know the id."""
    try:
        return (await admin.describe_transactions([transactional_id]))[transactional_id]
    except ClientError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise


async def _state_of(admin: Admin, transactional_id: str) -> str | None:
    found = await _described(admin, transactional_id)
    return None if found is None else found.state


async def _abort_one(admin: Admin, transactional_id: str) -> None:
    """Aborts a transaction with the producer id and epoch reported by the coordinator. Does nothing if the transaction
    has ended in the meantime. If no transaction has begun yet, fences the producer, so that it cannot begin one."""
    found = await _described(admin, transactional_id)
    if found is not None and found.state == EMPTY:
        await admin.force_terminate_transaction(transactional_id)
    if found is None or found.state != ONGOING:
        return
    try:
        state = PreparedTxnState(found.producer_id, found.producer_epoch)
        await admin.end_transaction(transactional_id, state, committed=False)
    except ProducerFenced:
        _log.info("%s was ended by another client", transactional_id)
