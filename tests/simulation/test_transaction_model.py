"""Tests that a broker answers thousands of requests as a model predicts.

The requests come from producers of both protocols, zombies, two-phase commits and their recoveries, and administrators.
The broker restarts, markers are held, and the level of transaction.version changes in between.

`OPERATIONS=n` tries this many requests for each seed. `SEED=n` repeats one seed. Rules: docs/spec/transactions.md#s2,
#s3.
"""

import os
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.records import encode_record
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.simulation.seeds import seeds
from tests.simulation.transaction_model import LAST_USABLE, OFFSETS, TIMEOUT_MS, Model, Pair, Record, State
from tests.simulation.transaction_model import Txn as ModelTxn
from tests.simulation.wrong_parts import NotBumpedAgain, NothingSealed, TimeoutPassedOn
from tests.support.broker_scene import NOW_MS
from tests.support.transaction_scene import S as Stored
from tests.support.transaction_scene import txn as stored
from tests.support.transactional_clients import TV1, TV2, Clients, batch_of

E = ErrorCode
IDS = ["id-0", "id-1", "id-2"]
PARTITIONS = 2
PATIENCE = 20  # number of seeds
OLD_PRODUCER_ID = 900_000_000
IDS_OF_A_PROCESS = 100_000
# Number of (producer id, epoch) pairs that a trial remembers for each transactional id. A producer with any pair except
# the newest is a zombie.
REMEMBERED = 6
# The only errors that a request may receive. Any other error would reveal a bug, or have a cause outside the
# transaction.
LAWFUL = {
    E.CONCURRENT_TRANSACTIONS,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.INVALID_TXN_STATE,
    E.NOT_ENOUGH_REPLICAS,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    E.PRODUCER_FENCED,
    E.TRANSACTION_ABORTABLE,
    E.UNSUPPORTED_VERSION,
}


class Trial:
    """A broker, its model, and random requests to both."""

    def __init__(self, seed: int, new_core: Callable[..., TransactionCore] = TransactionCore) -> None:
        self.rng = Random(seed)
        level = self.rng.choice([2, 2, 2, 1, 0])
        self.model = Model(PARTITIONS, level)
        self.scene = Clients(
            transaction_version=level,
            decisions=TransactionConfig(transaction_two_phase_commit_enable=True),
            new_core=new_core,
        )
        self.known_pairs: dict[str, deque[Pair]] = {name: deque(maxlen=REMEMBERED) for name in IDS}
        self.trace: deque[str] = deque(maxlen=40)
        self.counts: Counter[str] = Counter()
        self.started_ms = self.scene.clock.now_ms()
        if level and self.rng.random() < 0.5:
            self._age(IDS[0], LAST_USABLE - self.rng.randint(0, 20))

    def _age(self, name: str, epoch: int) -> None:
        """Gives the transactional id a producer id with few epochs left."""
        pair = (OLD_PRODUCER_ID, epoch)
        record = encode_record(stored(Stored.EMPTY, pair, transactional_id=name, version=0), self.model.level)
        batch = build_batch([NewRecord(*record, NOW_MS)])
        self.scene.partition(TRANSACTION_STATE).append_now(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS)
        self.scene.restart_coordinator()
        self.model.txns[name] = ModelTxn(pair, is_two_phase=False)
        self.known_pairs[name].append(pair)

    # --- Random choices.

    def run(self, operations: int) -> None:
        steps: list[tuple[Callable[[], object], int]] = [
            (self.init, 12),
            (self.produce, 34),
            (self.add, 8),
            (self.commit_offset, 14),
            (self.end, 20),
            (self.force_terminate, 2),
            (self.abort_in_partition, 2),
            (self.wait, 2),
            (self.hold_markers, 3),
            (self.release_markers, 4),
            (self.restart, 1),
            (self.change_level, 1),
        ]
        drawn = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps], k=operations)
        try:
            for number, step in enumerate(drawn):
                step()
                self.compare_ids()
                if number % 50 == 0:
                    self.compare_readers()
            self.release_markers()
            self.restart()
            self.compare_ids()
            self.compare_readers()
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.trace])) from error

    def some_id(self) -> str:
        return self.rng.choice(IDS)

    def some_known_id(self) -> str | None:
        return self.rng.choice([*self.model.txns]) if self.model.txns else None

    def some_pair(self, name: str) -> Pair:
        """Returns a producer id and epoch: mostly those of the current producer, sometimes those of a zombie."""
        if self.rng.random() < 0.7 or not self.known_pairs[name]:
            return self.model.txns[name].client
        return self.rng.choice(self.known_pairs[name])

    def learn(self, name: str, pair: Pair) -> None:
        if pair not in self.known_pairs[name]:
            self.known_pairs[name].append(pair)

    def check_answer(self, what: str, code: ErrorCode, *, expected: bool) -> bool:
        is_accepted = code is E.NONE
        self.counts[f"{what.split()[0]} {'accepted' if is_accepted else 'refused'}"] += 1
        self.trace.append(f"{what}: {code.name}")
        assert is_accepted is expected, f"{what}: {code.name}, and the model says {'yes' if expected else 'no'}"
        assert is_accepted or code in LAWFUL, f"{what}: {code.name}"
        return is_accepted

    # --- Producers.

    def init(self, *, name: str | None = None, check_answer: Pair | None = None) -> ErrorCode:
        name = name or self.some_id()
        two_phase, keep = self.rng.random() < 0.5, self.rng.random() < 0.5
        if name in self.model.txns and self.rng.random() < 0.4:
            txn = self.model.txns[name]
            # A restart may have forgotten the previous pair. Other old pairs are recognised by their epoch.
            old = [each for each in self.known_pairs[name] if txn.is_previous_known or each[1] < txn.client[1] - 1]
            check_answer = self.rng.choice([txn.client, *old])
        return self._init(name, check_answer, two_phase=two_phase, keep=keep)

    def _init(self, name: str, check_answer: Pair | None, *, two_phase: bool, keep: bool) -> ErrorCode:
        outcome = self.model.begins(name, check_answer, two_phase=two_phase, keep=keep)
        what = f"init {name} {check_answer} two_phase={two_phase} keep={keep}"
        before = self.model.txns[name].pair if name in self.model.txns else None
        answered, ongoing, code = None, None, E.NONE
        try:
            answered, ongoing = self.scene.init6(
                (-1, -1) if check_answer is None else check_answer,
                two_phase=two_phase,
                keep=keep,
                transactional_id=name,
            )
        except KafkaError as refusal:
            code = refusal.code
        self.check_answer(what, code, expected=outcome in ("new", "next", "again", "kept"))
        if answered is not None:
            expected = self.model.begin(name, outcome, check_answer, answered, two_phase=two_phase)
            assert answered == expected, f"{what}: {answered}, and the model says {expected}"
            assert ongoing == (before if outcome == "kept" else (-1, -1)), what
            self.learn(name, answered)
        elif outcome == "wait":
            assert code is E.CONCURRENT_TRANSACTIONS
            self.model.fence(name, self._fresh_id(name))
        return code

    def _fresh_id(self, name: str) -> int:
        """Returns the producer id that the coordinator assigned in a decision whose response was lost."""
        core = self.scene.transactions.shard_for(name).core
        txn = core.txn(name)
        assert txn is not None
        return txn.producer_id if txn.next_producer_id is None else txn.next_producer_id

    def produce(self) -> None:
        name = self.some_known_id()
        if name is None:
            return
        pair, index, adds = self.some_pair(name), self.rng.randrange(PARTITIONS), self.rng.random() < 0.6
        partition = self.model.partitions[index]
        value = f"{next(self.model.values)}".encode()
        sequence = partition.sequences.get(pair, 0)
        what = f"produce {name} {pair} {index} {value!r} adds={adds}"
        expected = self.model.may_write(name, pair, index, adds=adds)
        batches: list[Any] = [*[None] * index, batch_of(pair, sequence, value, timestamp_ms=self.scene.clock.now_ms())]
        version = self.rng.choice([TV2, 13]) if adds else self.rng.choice([9, TV1])
        reply = self.scene.send(*batches, version=version, transactional_id=name)
        self.settle(reply)
        code = ErrorCode(self.scene.produce_answers(reply, version)[0].error_code)
        if self.check_answer(what, code, expected=expected):
            self.model.write(name, pair, index, Record(value, pair[0]), adds=adds)

    def settle(self, reply: Any) -> None:
        """Waits for the response. A request that adds a partition first waits for the previous transaction to end."""
        self.scene.settle()
        if isinstance(reply, Deferred) and not reply.is_done:
            self.pass_time(200)

    def add(self) -> None:
        name = self.some_known_id()
        if name is None:
            return
        pair, index = self.some_pair(name), self.rng.choice([0, 1, OFFSETS])
        what = f"add {name} {pair} {index}"
        expected = self.model.may_add(name, pair)
        if index == OFFSETS:
            code = self.scene.add_offsets(pair, group=name, transactional_id=name)
        else:
            code = self.scene.add(pair, index, transactional_id=name)
        if self.check_answer(what, code, expected=expected):
            self.model.add(name, index, 0)

    def commit_offset(self) -> None:
        name = self.some_known_id()
        if name is None:
            return
        pair, adds, offset = self.some_pair(name), self.rng.random() < 0.6, next(self.model.values)
        what = f"offset {name} {pair} {offset} adds={adds}"
        expected = self.model.may_write(name, pair, OFFSETS, adds=adds)
        version = 5 if adds else self.rng.randint(0, 4)
        code = self.scene.commit_offset_in_transaction(pair, offset, version=version, group=name, transactional_id=name)
        if self.check_answer(what, code, expected=expected):
            record = Record(b"", pair[0], offset=offset, group=name)
            self.model.write(name, pair, OFFSETS, record, adds=adds)

    def end(self) -> None:
        name = self.some_known_id()
        if name is None:
            return
        pair, commit, version = self.some_pair(name), self.rng.random() < 0.6, self.rng.choice([0, 2, 2])
        outcome = self.model.ends(name, pair, commit=commit, version=version)
        what = f"end {name} {pair} commit={commit} version={version}"
        code, answered = E.NONE, pair
        try:
            answered = self.scene.end(pair, commit=commit, version=5 if version else 3, transactional_id=name)
        except KafkaError as refusal:
            code = refusal.code
        if not self.check_answer(what, code, expected=bool(outcome)):
            return
        if outcome == "again":
            following = self.model.txns[name].pair
        else:
            following = self.model.end(name, commit=commit, version=version, fresh=answered[0])
        if version == 2 and answered != (-1, -1):
            assert answered == following, f"{what}: {answered}, and the model says {following}"
        self.learn(name, following)

    # --- Administrators.

    def force_terminate(self) -> None:
        """Fences a producer as `Admin.fenceProducers` does, repeating the request until it succeeds."""
        name = self.some_id()
        for _ in range(3):
            if self._init(name, None, two_phase=False, keep=False) is E.NONE:
                return
            if self.model.held:
                self.release_markers()

    def abort_in_partition(self) -> None:
        """Aborts a transaction in one partition without the coordinator, as `Admin.abortTransaction` does. This works
        even on a sealed transaction."""
        index = self.rng.randrange(PARTITIONS)
        partition = self.model.partitions[index]
        if not partition.open:
            return
        producer_id = self.rng.choice([*partition.open])
        pair = producer_id, partition.open[producer_id]
        epoch = self.scene.image.topics[TRANSACTION_STATE].partitions[0].leader_epoch
        code = self.scene.write_marker(pair, commit=False, index=index, coordinator_epoch=epoch)
        self.check_answer(f"abort-in-partition {pair} {index}", code, expected=True)
        partition.mark(pair, commit=False, version=0)

    def hold_markers(self) -> None:
        held = self.rng.choice([0, 1, OFFSETS])
        self.model.held.add(held)
        place = (GROUP_OFFSETS, 0) if held == OFFSETS else ("t", held)
        self.scene.markers.refusals[place] = E.NOT_LEADER_OR_FOLLOWER
        self.trace.append(f"hold {held}")

    def release_markers(self) -> None:
        self.model.held = set()
        self.scene.markers.refusals = {}
        self.trace.append("release")
        self.pass_time(1_000)
        self.model.write_markers()

    def change_level(self) -> None:
        if self.model.held:
            return
        self.model.level = self.scene.features[TRANSACTION_VERSION] = self.rng.choice([2, 2, 1])
        self.trace.append(f"level {self.model.level}")

    # --- Events without a request.

    def wait(self) -> None:
        self.pass_time(self.rng.choice([1_000, TIMEOUT_MS // 2, TIMEOUT_MS + 2]))

    def pass_time(self, ms: int) -> None:
        self.scene.timers.advance(ms)
        self.scene.settle()
        self.scene.transactions.abort_timed_out()
        self.scene.settle()
        self.model.now_ms = self.scene.clock.now_ms() - self.started_ms
        self.model.write_markers()
        for name in self.model.timed_out():
            self.trace.append(f"{name} times out")
            self.model.fence(name, self._fresh_id(name))

    def restart(self) -> None:
        killed = self.rng.random() < 0.5
        self.trace.append("kill" if killed else "restart")
        self.counts["restart"] += 1
        now_ms = self.scene.clock.now_ms()
        self.scene = self.scene.restarted(killed=killed)
        self.scene.blocks.begin_at(IDS_OF_A_PROCESS * (1 + self.counts["restart"]))
        self.scene.timers.advance(now_ms - self.scene.clock.now_ms())
        self.scene.settle()
        self.model.restart()
        self.pass_time(0)

    # --- Comparison with the model.

    def compare_ids(self) -> None:
        for name, txn in self.model.txns.items():
            described = self.scene.transactions.describe(name)
            assert (described.producer_id, described.producer_epoch) == txn.pair, (name, described, txn)
            names = {
                State.EMPTY: {"Empty"},
                State.OPEN: {"Ongoing"},
                State.DECIDED: {"PrepareCommit", "PrepareAbort"},
                State.COMMITTED: {"CompleteCommit"},
                State.ABORTED: {"CompleteAbort"},
            }
            assert described.transaction_state in names[txn.state], (name, described, txn)
            self.learn(name, txn.client)

    def compare_readers(self) -> None:
        for index in range(PARTITIONS):
            partition = self.model.partitions[index]
            assert self.scene.read(committed=True, index=index) == partition.visible(), f"t-{index}"
            written = [each.value for each in partition.records]
            assert self.scene.read(committed=False, index=index) == written, f"t-{index}"
        for name in IDS:
            assert self.scene.committed_offset(group=name) == self.model.committed_offset(name), name


def operations(usually: int) -> int:
    return int(os.environ.get("OPERATIONS", usually))


@pytest.mark.parametrize("seed", seeds(8))
def test_every_request_is_answered_as_the_model_says(seed: int) -> None:
    Trial(seed).run(operations(400))


@pytest.mark.parametrize("wrong", [NothingSealed, NotBumpedAgain, TimeoutPassedOn])
def test_a_planted_bug_is_found_within_a_few_seeds(wrong: type[TransactionCore]) -> None:
    for seed in range(PATIENCE):
        try:
            Trial(seed, wrong).run(400)
        except AssertionError:
            return
    pytest.fail(f"{PATIENCE} seeds passed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
def test_thousands_of_requests_are_answered_as_the_model_says(seed: int) -> None:
    trial = Trial(1_000 + seed)
    trial.run(operations(10_000))
    drawn = {"init", "produce", "add", "offset", "end"}
    assert {f"{each} {how}" for each in drawn for how in ("accepted", "refused")} <= trial.counts.keys()
    assert trial.counts["restart"] > 10
