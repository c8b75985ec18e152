"""Tests that an application with a share group makes an output visible if and only if its input is acknowledged, even
after crashes.

Workers acquire records, write an output for each, and acknowledge the records in the same transaction. At random, the
broker is killed, responses are lost, markers are lost or repeated, sessions end, and locks and transactions time out.
At the end, all remaining records are processed. Each acknowledged input then has exactly one visible output, and no
other input has any. Rules: docs/spec/share-groups.md#s5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from unittest.mock import patch

import pytest

from odradek.broker.shares.core import entry, pending_records
from odradek.broker.shares.core.records import decode_record
from odradek.broker.shares.core.state import Resolution, TransactionEnd
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig, StateCore
from odradek.protocol.batch_header import BatchHeader, batches
from odradek.protocol.control_records import read_marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from odradek.storage.log import Origin
from tests.simulation.seeds import seeds
from tests.support.share_broker import STATE_PARTITIONS
from tests.support.share_member import Batches, Member
from tests.support.txn_share_broker import ACCEPT, Producer, TxnShareBroker
from tests.support.variants import pure_only

INPUTS = 12
ACKNOWLEDGED, ARCHIVED = 2, 4
STEPS = 40


class Worker:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.producer = Producer(world.broker, name)
        self.begin()

    def begin(self) -> None:
        self.world.generation += 1
        self.member: Member = self.world.broker.joined(f"{self.name}-{self.world.generation}")
        self.producer.init(timeout_ms=20_000)
        self.held: list[tuple[int, int]] = []
        self.sequence = 0
        self.is_open = False

    def take(self) -> None:
        if self.member.heartbeat().error_code != 0:  # The member has slept for longer than its session timeout.
            self.abort()
            self.begin()
        for first, last, _ in self.member.acquire(self.world.topic, max_records=3):
            # The locks of these records' earlier deliveries have expired, so the member no longer holds those
            # deliveries.
            self.held = [held for held in self.held if held[1] < first or held[0] > last]
            self.held.append((first, last))

    def work(self, *, loses_answer: bool) -> None:
        """Writes an output for each held record, and acknowledges the records, all in the open transaction."""
        if not self.held:
            return
        broker, (first, last) = self.world.broker, self.held.pop(0)
        acks: dict[bytes | tuple[bytes, int], Batches] = {self.world.topic: [(first, last, ACCEPT)]}
        codes = self.producer.codes(self.member, acks)
        if loses_answer:
            codes = self.producer.codes(self.member, acks)  # A client repeats a request whose response was lost.
        self.is_open = self.is_open or codes == [ErrorCode.NONE]
        if codes != [ErrorCode.NONE]:
            self.abort()
            return
        added = broker.transactions.add_partitions(
            self.name, *self.producer.pair, {("out", 0)}, verify_only=False, requested_version=2
        )
        broker.settle()
        assert added
        records = [NewRecord(None, b"%d" % offset, broker.clock.now_ms()) for offset in range(first, last + 1)]
        broker.partition("out").append_now(
            build_batch(
                records,
                producer_id=self.producer.pair[0],
                producer_epoch=self.producer.pair[1],
                base_sequence=self.sequence,
                is_transactional=True,
            ),
            origin=Origin.CLIENT,
            now_ms=broker.clock.now_ms(),
        )
        self.sequence += len(records)
        broker.settle()

    def commit(self) -> None:
        if self.is_open:
            self._end(commit=True)

    def abort(self) -> None:
        if self.is_open:
            self._end(commit=False)
        self.held.clear()

    def _end(self, *, commit: bool) -> None:
        self.is_open, self.sequence = False, 0
        if self.producer.end(commit=commit) is not ErrorCode.NONE:
            self.begin()  # The broker has fenced the producer by aborting the transaction.


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = TxnShareBroker()
        self.broker.set_group(share_delivery_count_limit="10", share_record_lock_duration_ms="15000")
        self.topic = self.broker.shared_topic("T", *[1] * INPUTS)
        self.broker.topic("out")
        self.generation = 0
        self.acknowledged: set[int] = set()
        self.archived: set[int] = set()
        self.workers = [Worker(self, name) for name in ("one", "two")]

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.note()
        self.finish()

    def step(self) -> None:
        worker = self.random.choice(self.workers)
        match self.random.choice(
            ["take", "take", "work", "work", "work", "commit", "commit", "abort", "kill", "sleep", "leave", "markers"]
        ):
            case "take":
                worker.take()
            case "work":
                worker.work(loses_answer=self.random.random() < 0.3)
            case "commit":
                worker.commit()
            case "abort":
                worker.abort()
            case "kill":
                self.kill()
            case "sleep":
                self.broker.sleep(self.random.choice([100, 6_000, 16_000]))
            case "leave":
                worker.member.disconnect()
                worker.abort()
                worker.begin()
            case "markers":
                self.repeat_an_old_marker()

    def kill(self) -> None:
        """Kills the broker between a decision and its markers, between staging and decision, or at some other
        moment."""
        worker = self.random.choice(self.workers)
        if worker.is_open and self.random.random() < 0.5:
            self.broker.markers.held = []
            worker.producer.begin_end(commit=self.random.random() < 0.7)
            self.broker.markers.held = None
        self.broker.kill()
        for each in self.workers:
            each.begin()

    def repeat_an_old_marker(self) -> None:
        if self.broker.markers.sent:
            marker = self.random.choice(self.broker.markers.sent[-6:])
            self.broker.broker.markers.write([marker], lambda results: None)
            self.broker.settle()

    def finish(self) -> None:
        for worker in self.workers:
            worker.commit()
        self.broker.sleep(60_000)
        (worker, *_) = self.workers
        worker.begin()
        for _ in range(3 * INPUTS):
            worker.take()
            while worker.held:
                worker.work(loses_answer=False)
            worker.commit()
            self.note()
            self.broker.sleep(16_000)

    def outputs(self) -> Counter[int]:
        """Returns how many of each input's outputs read_committed consumers see."""
        log = self.broker.partition("out").log
        found = Counter[int]()
        open_: dict[int, list[int]] = {}
        for portion in log.reader.scan(log.log_start_offset, log.log_end_offset):
            for position, header in batches(portion):
                if header.is_control:
                    marker = read_marker(portion, position, header)
                    values = open_.pop(header.producer_id, [])
                    if marker is not None and marker.is_commit:
                        found.update(values)
                else:
                    values = [int(each.value or b"") for each in records_of(portion, position)]
                    open_.setdefault(header.producer_id, []).extend(values)
        return found

    def note(self) -> None:
        """Records the stored state before obsolete records of `__share_group_state` are deleted."""
        self.acknowledged |= self.stored(ACKNOWLEDGED)
        self.archived |= self.stored(ARCHIVED)

    def stored(self, delivery_state: int) -> set[int]:
        """Returns the inputs that have ever been stored in this state, either by a record or by a marker."""
        found: set[int] = set()
        for index in range(STATE_PARTITIONS):
            core = StateCore(ShareCoordinatorConfig(), lambda topic_id, index: True)
            log = self.broker.partition(SHARE_GROUP_STATE, index).log
            for portion in log.reader.scan(log.log_start_offset, log.log_end_offset):
                for position, header in batches(portion):
                    replay(core, portion, position, header)
                    for key in core.keys:
                        state = core.read(key, -1, 0).response
                        assert state is not None
                        for first, last, stored_state, _ in state.batches:
                            found.update(range(first, last + 1) if stored_state == delivery_state else ())
        return found


def replay(core: StateCore, portion: bytes, position: int, header: BatchHeader) -> None:
    if header.is_control:
        marker = read_marker(portion, position, header)
        assert marker is not None
        core.replay_marker(marker.producer_id, marker.producer_epoch, committed=marker.is_commit)
        return
    for each in records_of(portion, position):
        record = decode_record(each.key, each.value)
        assert record is not None
        core.replay(record, each.offset, header.producer_id)


def violation(seed: int) -> str | None:
    world = World(seed)
    world.run()
    found = world.outputs()
    if world.broker.pending:
        return f"{world.broker.pending} records wait without end"
    twice = {each for each, count in found.items() if count > 1}
    world.note()
    acknowledged = world.acknowledged
    if twice or acknowledged != found.keys():
        return f"output of {sorted(found)}, twice of {sorted(twice)}, acknowledged {sorted(acknowledged)}"
    lost = set(range(INPUTS)) - acknowledged - world.archived  # Archived records were delivered as often as allowed.
    return f"never delivered again: {sorted(lost)}" if lost else None


@pytest.mark.parametrize("seed", seeds(60))
def test_output_is_visible_if_and_only_if_its_input_is_acknowledged(seed: int) -> None:
    assert violation(seed) is None


def equal_epochs(ending: TransactionEnd, producer_id: int, producer_epoch: int) -> Resolution | None:
    """Plants the rule of KIP-1289's text: only a marker with an equal epoch ends the transaction."""
    if (ending.producer_id, ending.producer_epoch) != (producer_id, producer_epoch):
        return None
    return Resolution.COMMITTED if ending.is_commit else Resolution.ABORTED


def any_later_epoch(ending: TransactionEnd, producer_id: int, producer_epoch: int) -> Resolution | None:
    """Plants a bug: a repeated marker of the previous transaction also ends the current one."""
    if ending.producer_id != producer_id or ending.producer_epoch < producer_epoch:
        return None
    return Resolution.COMMITTED if ending.is_commit else Resolution.ABORTED


@contextmanager
def matching(rule: Callable[[TransactionEnd, int, int], Resolution | None]) -> Iterator[None]:
    with patch.object(entry, "resolution_by", rule), patch.object(pending_records, "resolution_by", rule):
        yield


@contextmanager
def forgetting() -> Iterator[None]:
    """Plants a bug: staged acknowledgements exist only in memory, as in KIP-1289's text."""
    with patch.object(entry.PendingRanges, "add", lambda self, added: None):
        yield


@pure_only
@pytest.mark.parametrize(
    "bug",
    [lambda: matching(equal_epochs), lambda: matching(any_later_epoch), forgetting],
    ids=["equal epochs", "any later epoch", "in memory only"],
)
def test_planted_bugs_are_found(bug: Callable[[], AbstractContextManager[None]]) -> None:
    with bug():
        for seed in range(40):
            if violation(seed) is not None:
                return
    pytest.fail("nothing was found")
