"""Tests an outbox together with a partition that checks sequences like a broker, over connections that can be cut at
any moment.

Batches are appended in order, and no batch is appended twice. An acknowledged batch is always appended, and a refused
batch never is. Batches sent on a cut connection can still arrive, even after batches sent on the next connection.
"""

from __future__ import annotations

import random
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from odradek.client.common.values import TopicPartition
from odradek.client.producing.outbox import Gap, Outbox
from odradek.client.producing.producer_batch import LARGEST_SEQUENCE, NO_IDENTITY, ProducerBatch, ProducerIdentity
from odradek.protocol.compression import Compression

SEEDS = range(400)
BATCHES = 40
MAX_IN_FLIGHT = 5
CACHED = 5
LIMIT_BYTES = 1_000


@dataclass(frozen=True)
class SentBatch:
    """A batch as it was sent, with the producer identity and base sequence at that time."""

    batch: ProducerBatch
    identity: ProducerIdentity
    base_sequence: int

    @property
    def records(self) -> range:
        """Returns the numbers of the batch's records."""
        return range(self.batch.order, self.batch.order + self.batch.record_count)

    @property
    def sequences(self) -> tuple[int, int]:
        return self.base_sequence, (self.base_sequence + self.batch.record_count) & LARGEST_SEQUENCE


@dataclass
class Partition:
    """Applies the sequence rules of a broker's log without transactions and stores the numbers of the appended
    records."""

    log: list[int] = field(default_factory=list)
    identity: ProducerIdentity = NO_IDENTITY
    cache: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=CACHED))

    def append(self, sent: SentBatch) -> str:
        if sent.identity == self.identity and sent.sequences in self.cache:
            return "written"
        if sent.identity.producer_epoch < self.identity.producer_epoch:
            return "fenced"
        if self.identity != NO_IDENTITY:  # a producer without state may start with any sequence
            expected = self.cache[-1][1] if sent.identity == self.identity else 0
            if sent.base_sequence != expected:
                return "out of order"
        if sent.identity != self.identity:
            self.identity = sent.identity
            self.cache.clear()
        self.cache.append(sent.sequences)
        self.log += sent.records
        return "written"


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.outbox = Outbox(TopicPartition("t", 0), is_idempotent=True, first_alone=lambda: True)
        self.identity = ProducerIdentity(7, 0)
        self.partition = Partition()
        self.under_way: deque[SentBatch] = deque()
        self.answers: deque[tuple[SentBatch, str]] = deque()
        self.late: deque[SentBatch] = deque()  # batches sent on connections that were cut
        self.unopened = BATCHES
        self.opened: list[int] = []  # numbers of the records that were put into batches
        self.fates: dict[int, str] = {}
        self.trace = [f"SEED={seed}"]

    def run(self, faults: float) -> None:
        """Runs random steps, a fraction `faults` of which are faults. Then finishes all batches without faults."""
        for step in range(4_000):
            if step > 2_000:
                faults = 0.0
            if self.rng.random() < faults:
                self.rng.choice([self.cut, self.refuse, self.refuse_whole, self.give_up, self.fail_passing])()
            else:
                self.rng.choice([self.open, self.send, self.send, self.deliver, self.answer, self.deliver_late])()
            if not self.unopened and len(self.fates) == len(self.opened) and not self.outbox.in_flight:
                return
        raise AssertionError("it never ends: " + "\n".join(self.trace[-60:]))

    def open(self) -> None:
        if self.unopened:
            self.unopened -= 1
            batch = self.outbox.open_batch(0.0, 0)
            for _ in range(self.rng.randint(1, 3)):
                self.opened.append(batch.order + batch.record_count)
                batch.append(None, b"v", (), 0, LIMIT_BYTES, Future())

    def send(self) -> None:
        if self.outbox.needs_new_epoch(self.identity):
            self.identity = ProducerIdentity(7, self.identity.producer_epoch + 1)
            for lost in self.outbox.begin_epoch(self.identity):
                self.settle(lost, "given up")
            self.trace.append(f"epoch {self.identity.producer_epoch}")
        if len(self.outbox.in_flight) < MAX_IN_FLIGHT:
            batch = self.outbox.next_to_send(self.identity)
            if batch is not None:
                self.outbox.mark_sent(batch, self.identity)
                batch.seal(Compression.NONE, is_transactional=False)
                self.under_way.append(SentBatch(batch, batch.identity, batch.base_sequence))
                self.trace.append(f"send {batch.order} as {batch.identity.producer_epoch}:{batch.base_sequence}")

    def deliver(self) -> None:
        if self.under_way:
            sent = self.under_way.popleft()
            self.answers.append((sent, self.partition.append(sent)))
            self.trace.append(f"{sent.batch.order} {self.answers[-1][1]}")

    def deliver_late(self) -> None:
        if self.late:
            sent = self.late.popleft()
            self.trace.append(f"late {sent.batch.order} {self.partition.append(sent)}")

    def refuse(self) -> None:
        """Refuses the oldest batch in flight, for example because it is invalid."""
        if self.under_way:
            self.answers.append((self.under_way.popleft(), "refused"))

    def refuse_whole(self) -> None:
        """Refuses the oldest batch in flight as too large, if the batch can be split."""
        if self.under_way and self.under_way[0].batch.can_split:
            self.answers.append((self.under_way.popleft(), "too large"))

    def fail_passing(self) -> None:
        """Answers the oldest batch in flight with a transient error, for example too few replicas."""
        if self.under_way:
            self.answers.append((self.under_way.popleft(), "retry"))

    def give_up(self) -> None:
        """Gives up on the oldest unanswered batch, as the delivery timeout does."""
        unanswered = [batch for batch in (*self.outbox.in_flight, *self.outbox.waiting) if not batch.is_done]
        if unanswered:
            oldest = min(unanswered, key=lambda batch: batch.order)
            self.outbox.give_up(oldest)
            self.settle(oldest, "given up")

    def cut(self) -> None:
        lost = [sent.batch for sent, _ in self.answers] + [sent.batch for sent in self.under_way]
        self.late.extend(self.under_way)
        for _ in range(self.rng.randint(0, len(self.under_way))):
            self.late.pop()  # this batch never left the client
        self.answers.clear()
        self.under_way.clear()
        for batch in lost:
            self.outbox.requeue(batch, 0.0, was_lost=True)
        self.trace.append(f"cut {[batch.order for batch in lost]}")

    def answer(self) -> None:
        if not self.answers:
            return
        sent, said = self.answers.popleft()
        batch = sent.batch
        self.trace.append(f"answer {batch.order} {said}")
        if said == "written":
            self.outbox.remove_written(batch)
            self.settle(batch, "acknowledged")
        elif said == "out of order":
            self.out_of_order(batch)
        elif said == "too large" and not batch.is_done:
            self.outbox.split(batch)
        elif said in ("retry", "too large"):
            self.outbox.requeue(batch, 0.0)
        else:
            self.outbox.remove_refused(batch)
            self.settle(batch, said if batch.attempts == 1 else "given up")

    def out_of_order(self, batch: ProducerBatch) -> None:
        match self.outbox.classify_gap(batch):
            case Gap.WRITTEN_BEFORE:
                self.outbox.remove_written(batch)
                self.settle(batch, "acknowledged")
            case Gap.SENT_TOO_EARLY:
                self.outbox.requeue(batch, 0.0)
            case Gap.REAL:
                self.outbox.requeue_from(batch, 0.0)

    def settle(self, batch: ProducerBatch, fate: str) -> None:
        if not batch.is_done:
            batch.is_done = True
            self.fates.update(dict.fromkeys(range(batch.order, batch.order + batch.record_count), fate))


@pytest.mark.parametrize("faults", [0.0, 0.05, 0.2], ids=["calm", "faults", "storm"])
def test_no_batch_is_lost_doubled_or_out_of_order(faults: float) -> None:
    for seed in SEEDS:
        world = World(seed)
        world.run(faults)
        log, trace = world.partition.log, "\n".join(world.trace)
        assert log == sorted(set(log)), trace
        for order, fate in world.fates.items():
            if fate == "acknowledged":
                assert order in log, trace
            if fate == "refused":
                assert order not in log, trace
            assert fate != "fenced", trace
        if faults == 0.0:
            assert log == world.opened


def test_storms_meet_everything_that_can_happen() -> None:
    """Checks that the random steps cause every kind of response and fault. Otherwise the previous test would prove
    little."""
    met = set()
    for seed in SEEDS:
        world = World(seed)
        world.run(0.2)
        met |= {line.split()[-1] for line in world.trace if line.startswith(("answer", "late"))}
        met |= {line.split()[0] for line in world.trace}
    assert {"written", "refused", "retry", "order", "fenced", "late", "epoch", "cut", "large"} <= met
