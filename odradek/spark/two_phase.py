"""The two-phase commit of a sink's batches (docs/spec/spark.md#s2). Knows nothing of Spark.

Tasks prepare transactions under ids that are used once, and vote. The driver decides in the ledger, and then ends the
transactions. One rule makes it safe: whoever aborts transactions that are not his own writes them into the ledger
first, under a lease; a driver that finds one of its own there cannot decide any more.

A ledger that has less than this driver has written to it is an older copy, or another topic; then nothing is decided.

| what the ledger says when batch `b` is to be committed | verdict |
|---|---|
| a later batch was decided | BEHIND: the checkpoint is older than the output |
| `b` was decided | DECIDED, by an earlier call or by another driver: finish it, abort this copy |
| one of the votes' ids is doomed | DOOMED: somebody may be aborting it, so this copy cannot be decided |
| nothing of these | OPEN: decide |
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from odradek.client import Admin, ClientError, PreparedTxnState, ProducerFenced
from odradek.protocol.errors import ErrorCode
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import (
    LEDGER_TOPIC,
    ONGOING,
    UNDECIDED,
    LeaseLost,
    Ledger,
    LedgerEntry,
    PreparedPart,
    read_entries,
    undecided,
)
from odradek.spark.names import Sink, sink_of
from odradek.spark.steps import CommitStep, Observe, observe_nothing

# The broker forgets a transactional id an hour after its transaction ended (odradek.transactional.id.expiration.rules).
FORGOTTEN_AFTER_MS = 3_600_000
EXPIRED_AT_A_TIME = 10
DIGEST_MASK = 2**64 - 1  # digests add up in 64 bits
_log = logging.getLogger(__name__)


class SinkError(Exception):
    """A batch that is not committed as it should be."""


class CheckpointBehind(SinkError):
    """The ledger has a later batch: the checkpoint is an old copy, and the output has what it would write again."""


class LedgerBehind(SinkError):
    """The ledger lacks a batch that this driver has decided: the broker is an older copy, or the topic was made anew.
    Rows of committed batches may be lost with it."""


class VotesDoomed(SinkError):
    """A recovery is aborting transactions of this batch, for its query seemed to be gone. It is written again."""


class ReplayDiffers(SinkError):
    """A batch that was decided earlier had another number of rows, or a batch write of this key had other rows. The
    first decision stands."""


class NotExactlyOnce(SinkError):
    """A transaction of a decided batch was ended otherwise, by an operator, and its rows are lost."""


@dataclass(frozen=True, slots=True)
class Vote:
    """A task's promise: its rows are written and flushed, in a transaction that no crash ends.

    `digest` does not depend on the order of the rows, so that digests of tasks can be added.
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

    @property
    def part(self) -> PreparedPart:
        return PreparedPart(self.transactional_id, self.state)


class BatchVerdict(Enum):
    BEHIND = auto()
    DECIDED = auto()
    DOOMED = auto()
    OPEN = auto()


def judge(entry: LedgerEntry, batch: int, votes: Iterable[Vote]) -> BatchVerdict:
    """Judges by the table above."""
    if entry.batch > batch:
        return BatchVerdict.BEHIND
    if entry.batch == batch:
        return BatchVerdict.DECIDED
    doomed = set(entry.doomed)
    return BatchVerdict.DOOMED if any(vote.transactional_id in doomed for vote in votes) else BatchVerdict.OPEN


def decision(entry: LedgerEntry, batch: int, votes: Sequence[Vote], open_ids: Iterable[str], at_ms: int) -> LedgerEntry:
    """Returns the next record of the ledger. What is open and no vote's is doomed; the number settles earlier doom."""
    mine = {vote.transactional_id for vote in votes}
    return replace(
        entry,
        run=votes[0].run if votes else entry.run,
        batch=batch,
        parts=tuple(vote.part for vote in votes),
        doomed=tuple(sorted(set(open_ids) - mine)),
        rows=sum(vote.rows for vote in votes),
        digest=digest_of(votes),
        at_ms=at_ms,
        is_finished=False,
    )


def recovery(entry: LedgerEntry, open_ids: Iterable[str]) -> LedgerEntry:
    """Returns the record before an abort of what is open: in addition to what is doomed, since nothing is decided."""
    decided = {part.transactional_id for part in entry.parts}
    return replace(entry, doomed=tuple(sorted(set(entry.doomed) | (set(open_ids) - decided))))


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def digest_of(votes: Iterable[Vote]) -> int:
    return sum(vote.digest for vote in votes) & DIGEST_MASK


class TwoPhaseSink:
    """The driver's side of one sink. Calls come one after the other; any may be repeated after a crash anywhere."""

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
        self._decided = UNDECIDED  # the last batch that this driver has seen in the ledger

    async def close(self) -> None:
        """Gives the lease back; what is prepared stays so."""
        self._decided = UNDECIDED  # an expired key may be erased by others from here on
        await self._ledger.release()

    async def commit(self, votes: Sequence[Vote], batch: int, *, kept_ms: int | None = None) -> None:
        """Returns when the batch is decided and its transactions are committed. Raises SinkError or ClientError: then
        call `abort`, which finishes the batch if it was decided all the same.

        kept_ms   of a batch write with a key: for how long the ledger knows the key. Its repetition has to have the
                  same rows; that of a stream's batch may have others, as with rand().
        """
        await self._observe(CommitStep.BEGUN, 0)
        try:
            await self._commit(await self._ledger.held(), votes, batch, kept_ms)
        except (LeaseLost, LedgerBehind):  # what is held may be outdated
            try:
                await self._commit(await self._ledger.take(), votes, batch, kept_ms)
            except LeaseLost as error:
                raise SinkError(f"batch {batch} of {self._sink.name}: the lease was lost twice: {error}") from error
        await self._observe(CommitStep.FINISHED, 0)

    async def abort(self, votes: Sequence[Vote], batch: int) -> None:
        """Aborts a batch whose `commit` failed, or was never called. Spark calls it also when `commit` has raised after
        its decision: then the batch is finished."""
        entry = await self._ledger.take()
        async with self._brokers.admin() as admin:
            if entry.batch >= batch:
                await self._finish(admin, entry)
            await self._abort(admin, self._others(entry, votes))

    async def recover(self, run: str | None = None) -> LedgerEntry:
        """Finishes what was decided, and aborts whatever else is open (of this run), for a query that is gone. If it is
        not, its next commit fails, and the batch is written again. Returns the ledger's record."""
        try:
            return await self._recover(run)
        except LeaseLost:
            try:
                return await self._recover(run)
            except LeaseLost as error:
                raise SinkError(f"{self._sink.name}: the lease was lost twice: {error}") from error

    async def forget(self) -> None:
        """Takes the sink out of the ledger, for one that will not write again: a batch write that may be repeated, but
        has no key by which its repetition would be known."""
        if (await self._ledger.held()).batch > UNDECIDED:
            await self._ledger.erase()
            self._decided = UNDECIDED

    async def forget_expired(self) -> None:
        """Takes some sinks out of the ledger whose keys have expired, the oldest first; each under its own lease."""
        now_ms = self._clock_ms()
        entries = [each for each in (await read_entries(self._brokers)).values() if each.is_expired(now_ms)]
        for entry in sorted(entries, key=lambda each: each.at_ms)[:EXPIRED_AT_A_TIME]:
            ledger = Ledger(self._brokers, sink_of(entry.sink))
            try:
                if (await ledger.take()).is_expired(now_ms):
                    await ledger.erase()
            finally:
                await ledger.release()

    async def open_ids(self, run: str | None = None) -> list[str]:
        """Transactions of the sink's tasks (of this run) that are not ended. Takes no lease."""
        async with self._brokers.admin() as admin:
            return await self._open_ids(admin, run)

    async def _recover(self, run: str | None) -> LedgerEntry:
        entry = await self._ledger.take()
        async with self._brokers.admin() as admin:
            doomed = recovery(entry, await self._open_ids(admin, run))
            if doomed != entry:
                await self._ledger.write(doomed)
            await self._finish(admin, doomed)
        return doomed

    async def _commit(self, entry: LedgerEntry, votes: Sequence[Vote], batch: int, kept_ms: int | None) -> None:
        where = f"batch {batch} of {self._sink.name}"
        if entry.batch < self._decided:
            has = "no batch" if entry.batch == UNDECIDED else f"batch {entry.batch} as the last one"
            raise LedgerBehind(
                f"{where}: batch {self._decided} was committed, and the ledger {LEDGER_TOPIC} has {has}: the broker was"
                " restored from an older copy, or the topic was made anew, and the output may lack committed rows."
                " Restore the newest copy, or a checkpoint that is no newer than the broker"
            )
        self._decided = max(self._decided, entry.batch)
        if entry.is_expired(self._clock_ms()):
            entry = undecided(self._sink)
        async with self._brokers.admin() as admin:
            match judge(entry, batch, votes):
                case BatchVerdict.BEHIND:
                    raise CheckpointBehind(
                        f"{where}: batch {entry.batch} is committed already, so the checkpoint is an older copy."
                        " Restore the newest checkpoint, or start a new one with other starting offsets"
                    )
                case BatchVerdict.DECIDED:
                    await self._finish(admin, entry)
                    await self._abort(admin, self._others(entry, votes))
                    await self._note_finished(entry)
                    self._compare(entry, votes, where, is_keyed=kept_ms is not None)
                case BatchVerdict.DOOMED:
                    raise VotesDoomed(f"{where}: a recovery aborts its transactions; the batch has to be written again")
                case BatchVerdict.OPEN:
                    open_ids = await self._open_ids(admin)
                    if not votes and not open_ids:
                        return  # nothing is to be committed, nor aborted: a replay finds the same
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
        """Notes the end, so that a late replay asks nothing. The batch is committed also without the note."""
        if entry.is_finished:
            return
        try:
            await self._ledger.write(replace(entry, is_finished=True))
        except LeaseLost as error:
            _log.info("%s: batch %d is finished, which the ledger does not say: %s", entry.sink, entry.batch, error)

    async def _finish(self, admin: Admin, entry: LedgerEntry) -> None:
        """Ends what was decided, then aborts the doomed. Only an answer without an error proves a commit as long as the
        broker remembers the transactional id."""
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
            if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and age_ms >= FORGOTTEN_AFTER_MS:
                # Prepared transactions are not forgotten: this one was ended, by the driver that did not note it.
                _log.warning(
                    "%s: batch %d was decided %d minutes ago, and the broker does not know %r any more; it is taken for"
                    " committed",
                    where,
                    entry.batch,
                    age_ms // 60_000,
                    part.transactional_id,
                )
                return
            raise NotExactlyOnce(
                f"{where}: a batch was decided, but {part.state} of {part.transactional_id!r} was"
                f" ended by somebody else, and its rows are lost: {error}"
            ) from error

    async def _abort(self, admin: Admin, transactional_ids: Iterable[str]) -> None:
        await asyncio.gather(*(_abort_one(admin, each) for each in transactional_ids))

    def _others(self, entry: LedgerEntry, votes: Iterable[Vote]) -> list[str]:
        decided = {part.transactional_id for part in entry.parts}
        return [vote.transactional_id for vote in votes if vote.transactional_id not in decided]

    def _compare(self, entry: LedgerEntry, votes: Sequence[Vote], where: str, *, is_keyed: bool) -> None:
        rows = sum(vote.rows for vote in votes)
        if rows != entry.rows:
            raise ReplayDiffers(f"{where} was committed with {entry.rows} rows, and its replay has {rows}")
        if digest_of(votes) == entry.digest:
            return
        if is_keyed:
            raise ReplayDiffers(f"{where} was committed with other rows than are written now under the same key")
        _log.warning(
            "%s was committed with other rows than its replay has: the query is not deterministic, or its input has"
            " changed. The first ones stand.",
            where,
        )

    async def _open_ids(self, admin: Admin, run: str | None = None) -> list[str]:
        listed = await admin.list_transactions(states=[ONGOING], transactional_id_pattern=self._sink.pattern(run))
        return [each.transactional_id for each in listed]


async def _abort_one(admin: Admin, transactional_id: str) -> None:
    """Aborts by the pair that the coordinator has. A transaction that ends otherwise meanwhile is ended."""
    try:
        found = (await admin.describe_transactions([transactional_id]))[transactional_id]
    except ClientError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return
        raise
    if found.state != ONGOING:
        return
    try:
        state = PreparedTxnState(found.producer_id, found.producer_epoch)
        await admin.end_transaction(transactional_id, state, committed=False)
    except ProducerFenced:
        _log.info("%s was ended by somebody else", transactional_id)
