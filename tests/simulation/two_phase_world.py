"""A world of two-phase commits. Each transactional id belongs to an application with its own database.

The application writes its records and then its database row, and then ends the transaction according to the row. A
restarted application keeps the prepared transaction and acts on the row. Its database loses nothing, and only the
newest instance can write to it. The broker's disk keeps only synced data, and no setting requires an fsync.

In some seeds instances also begin ordinary transactions, with a timeout. Before an instance writes the row of such a
transaction, it keeps its own transaction with Enable2Pc, which turns the transaction into a two-phase commit. Instances
of both kinds recover transactions that the other kind has left. A power failure may lose ordinary transactions, even
acknowledged ones, so in these seeds the power fails only if everything is synced.

At the end, the committed rows in the database and the visible messages agree.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.transactions.entry import MAX_EPOCH, NEVER_MS, Txn
from odradek.broker.transactions.tables import TxnState
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes, response_has_tags
from odradek.protocol.messages import response_class
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.struct import Message
from tests.checker.history import Answer
from tests.simulation.network import Weather
from tests.simulation.plan import Plan, broker_config
from tests.simulation.producers import NO_PAIR, RETRIABLE, Ask, Attempt, Producer, ProducerEnded, Script
from tests.simulation.simulated_broker import Parts
from tests.simulation.transaction_world import DATA_PARTITIONS, NOW_MS, OLD_PRODUCER_ID, QUIET_MS, World
from tests.support.transaction_listing import all_listed

Pair = tuple[int, int]
E = ErrorCode
KEEPING, ENDING = 6, 5  # versions of InitProducerId and EndTxn
TRIES = 40
CALM = Weather(0, 0, 0)
WEATHERS = [CALM, Weather(), Weather(lost=0.1, twice=0.1, late=0.1), Weather(lost=0, twice=0.5, late=0.2)]


@dataclass(slots=True)
class Database:
    """The database of all applications. It decides which instance of a transactional id may write, and which
    transactions commit."""

    owners: dict[str, int] = field(default_factory=dict)
    rows: dict[tuple[str, Pair], Attempt] = field(default_factory=dict)
    # ordinary transactions, which may be ended only by their timeout
    ordinary: set[tuple[str, Pair]] = field(default_factory=set)

    def take_over(self, transactional_id: str) -> int:
        """Returns the number that the new instance uses for its writes. Earlier instances can no longer write."""
        number = self.owners[transactional_id] = self.owners.get(transactional_id, 0) + 1
        return number

    def commit(self, transactional_id: str, number: int, pair: Pair, attempt: Attempt) -> bool:
        """Commits the application's own row, which contains the transaction's producer id and epoch. Returns False if
        another instance has taken over."""
        if self.owners[transactional_id] != number:
            return False
        self.rows[transactional_id, pair] = attempt
        attempt.is_asked = True
        return True

    def is_committed(self, transactional_id: str, pair: Pair) -> bool:
        return (transactional_id, pair) in self.rows


class TwoPhaseProducer(Producer):
    def __init__(self, *args: Any, database: Database, may_be_ordinary: bool, **settings: Any) -> None:
        """Creates a producer. If `may_be_ordinary` is set, its transactions need not start as two-phase commits."""
        super().__init__(*args, is_new=True, **settings)
        self._database = database
        self._number = 0
        self._may_be_ordinary = may_be_ordinary
        self._is_two_phase = not may_be_ordinary or self._rng.random() < 0.5  # as in the last InitProducerId

    def script(self) -> Script:
        try:
            yield from self._recover()
            while True:
                yield from self._two_phase_commit()
                yield self._rng.choice([0, 1, 50])
                if self._may_be_ordinary and self._is_two_phase and self._rng.random() < 0.1:
                    self._is_two_phase = False
                    yield from self._initialise()
        except ProducerEnded:
            return

    def _recover(self) -> Script:
        ongoing = yield from self._keep(is_two_phase=self._is_two_phase)
        # The order matters: first the broker responds, then the instance takes over the database, and then it reads the
        # row. In another order, an instance that the broker has already superseded could still write its row after the
        # next instance has found none.
        self._number = self._database.take_over(self.transactional_id)
        if ongoing != NO_PAIR:
            yield from self._dies_or_sleeps(0.3)
            yield from self._complete(self._database.is_committed(self.transactional_id, ongoing))

    def _keep(self, *, is_two_phase: bool) -> Generator[Sequence[Ask] | int, list[Any], Pair]:
        """Keeps the open transaction and returns its producer id and epoch."""
        request = keep_request(self.transactional_id, 0 if is_two_phase else self._timeout_ms)
        for _ in range(TRIES):
            if is_two_phase:
                self._database.ordinary -= {
                    each for each in self._database.ordinary if each[0] == self.transactional_id
                }
            (answer,) = yield [Ask(request, KEEPING)]
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is E.NONE:
                self._pair = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
            if code is not None and code not in RETRIABLE:
                break
            yield 20
        raise ProducerEnded

    def _two_phase_commit(self) -> Script:
        self.connection += 1
        attempt = self._book.begin(self.name, f"group of {self.transactional_id}")
        own_pair = self._pair
        if not self._is_two_phase:
            self._database.ordinary.add((self.transactional_id, own_pair))
        rng = self._rng
        is_well = True
        for _ in range(rng.randint(1, 2)):
            batches = [self._new_batch(attempt) for _ in range(rng.randint(1, 3))]
            is_well = is_well and (yield from self._produce(batches))
        if is_well and rng.random() < 0.6:
            is_well = yield from self._commit_offset(attempt)
        yield from self._dies_or_sleeps(0.1)
        is_commit = is_well and rng.random() < 0.75
        if is_commit and not self._is_two_phase:
            ongoing = yield from self._keep(is_two_phase=True)
            if ongoing == NO_PAIR:
                return  # The transaction timed out first, and the transactional id is ready for the next one.
            self._is_two_phase = True  # This is true at least for later transactions.
            if ongoing != own_pair:
                raise ProducerEnded
            yield from self._dies_or_sleeps(0.15)
        if is_commit and not self._database.commit(self.transactional_id, self._number, own_pair, attempt):
            raise ProducerEnded
        yield from self._dies_or_sleeps(0.15)
        yield from self._complete(is_commit)

    def _dies_or_sleeps(self, likely: float) -> Script:
        if self._rng.random() < likely:
            raise ProducerEnded
        if self._rng.random() < 0.1:
            yield self._rng.choice([200, 3_000, 9_000])

    def _complete(self, is_commit: bool) -> Script:
        for _ in range(TRIES):
            (answer,) = yield [Ask(end_request(self.transactional_id, self._pair, is_commit), ENDING)]
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is E.NONE:
                self._pair = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            if code is not None and code not in RETRIABLE:
                break
            yield 20
        raise ProducerEnded


class TwoPhaseWorld(World):
    may_repeat_ends = True

    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self.database = Database()
        rng = Random(seed)
        self.has_ordinary = rng.random() < 0.5
        is_durable = self.has_ordinary and rng.random() < 0.3
        plan = replace(Plan.drawn(rng), level=2, is_durable=is_durable, weather=rng.choice(WEATHERS))
        super().__init__(seed, parts, plan)
        self.speaks_new = dict.fromkeys(self.transactional_ids, True)

    def _broker_config(self) -> BrokerConfig:
        return broker_config(
            self.plan.is_durable,
            log_cleaner_enable=str(self.plan.is_compacting).lower(),
            transaction_two_phase_commit_enable="true",
        )

    @property
    def _may_lose_power(self) -> bool:
        return self.plan.is_durable or not self.has_ordinary

    def _new_producer(self, name: str, transactional_id: str) -> Producer:
        return TwoPhaseProducer(
            name,
            transactional_id,
            self.rng,
            self.book,
            DATA_PARTITIONS,
            now_ms=self.time.now_ms,
            database=self.database,
            may_be_ordinary=self.has_ordinary,
        )

    def _replace_producer(self) -> None:
        """Replaces a producer with a new one, or with two new ones that do not know about each other."""
        transactional_id = self.rng.choice(self.transactional_ids)
        for _ in range(self.rng.choice([1, 2])):
            self._start_producer(transactional_id)

    def _aged(self, transactional_id: str, epoch: int) -> Txn:
        """Returns a transaction with few epochs left, or an empty transaction whose owner has few epochs left."""
        aged = Txn(transactional_id, OLD_PRODUCER_ID, epoch, NEVER_MS, updated_ms=NOW_MS)
        if self.rng.random() < 0.5:
            return aged
        return replace(
            aged,
            state=TxnState.ONGOING,
            producer_epoch=min(epoch, MAX_EPOCH - 1),
            started_ms=NOW_MS,
            previous_producer_id=OLD_PRODUCER_ID,
            next_producer_id=OLD_PRODUCER_ID + 1,
            next_producer_epoch=MAX_EPOCH - self.rng.randint(0, 5),
            client_version=2,
        )

    # --- The end of the run.

    def _decide_the_rest(self) -> None:
        """Starts each application once more, without faults. Afterwards the broker agrees with each database."""
        if (
            self.plan.weather == CALM
        ):  # In other weather, a request in flight could turn another transaction into a two-phase commit.
            self._check_timeouts()
        for transactional_id in self.transactional_ids:
            self._recover(transactional_id)
        for attempt in self.database.rows.values():
            attempt.answer = Answer.YES
        self._pass(1_000)

    def _check_timeouts(self) -> None:
        assert self.broker is not None
        for listed in all_listed(self.broker.transactions):
            if listed.transaction_state == TxnState.ONGOING.kafka_name:
                described = self.broker.transactions.describe(listed.transactional_id)
                pair = described.producer_id, described.producer_epoch
                is_ordinary = (listed.transactional_id, pair) in self.database.ordinary
                assert not is_ordinary, f"{listed.transactional_id} {pair} is still open after {QUIET_MS} ms"

    def _recover(self, transactional_id: str) -> None:
        answer = self._ask_now(keep_request(transactional_id), KEEPING)
        assert not answer.error_code, f"{transactional_id} cannot be recovered: {ErrorCode(answer.error_code).name}"
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        if ongoing == NO_PAIR:
            return
        pair = answer.producer_id, answer.producer_epoch
        is_commit = self.database.is_committed(transactional_id, ongoing)
        ended = self._ask_now(end_request(transactional_id, pair, is_commit), ENDING)
        assert not ended.error_code, f"{transactional_id} cannot be decided: {ErrorCode(ended.error_code).name}"

    def _ask_now(self, request: Message, version: int) -> Any:
        assert self.broker is not None
        answers: list[bytes] = []
        self.broker.receive(request_bytes(request, version, 1, "recovery"), answers.append)
        self._pass(1_000)
        assert answers, f"{type(request).__name__} is not answered"
        kind = response_class(request.API_KEY)
        return decode(kind, version, answers[0], 8 + response_has_tags(request.API_KEY, kind, version))


def keep_request(transactional_id: str, timeout_ms: int = 0) -> InitProducerIdRequest:
    """Returns an InitProducerId request that keeps the prepared transaction.

    timeout_ms  transaction timeout; 0 requests Enable2Pc, which has no timeout
    """
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        enable2_pc=not timeout_ms,
        keep_prepared_txn=True,
    )


def end_request(transactional_id: str, pair: Pair, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=is_commit
    )
