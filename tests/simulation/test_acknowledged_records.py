"""Tests that after a crash every acknowledged record exists once, no record exists twice, and each producer's records
are in order.

Producers and a coordinator run with a failing disk and slow threads until the process is killed or the power fails. The
seed determines the complete run.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from odradek.broker.partitions.partition import Partition
from odradek.protocol.errors import KafkaError
from odradek.protocol.records import NewRecord, batches, build_batch, records_of
from odradek.storage.log import Origin
from tests.simulation.seeds import seeds
from tests.support.batches import batch_by
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault

SEEDS = seeds(150)
STEPS = 80


@dataclass
class SentBatch:
    """A batch that a producer or the coordinator has sent. Its outcome is None if it was acknowledged."""

    producer_id: int
    sequence: int
    value: bytes
    outcomes: list[KafkaError | None] = field(default_factory=list)
    is_refused: bool = False

    @property
    def is_acknowledged(self) -> bool:
        return None in self.outcomes

    @property
    def is_waiting(self) -> bool:
        return not self.is_refused and not self.outcomes


class Producer:
    """A producer that sends its next batch after an acknowledgement and repeats the last batch after a failure."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sent: list[SentBatch] = []

    def send(self, partition: Partition) -> None:
        last = self.sent[-1] if self.sent else None
        if last is not None and last.is_waiting:
            return
        if last is None or last.is_acknowledged:
            sequence = len(self.sent)
            last = SentBatch(self.producer_id, sequence, b"%d/%d" % (self.producer_id, sequence))
            self.sent.append(last)
        last.outcomes, last.is_refused = [], False
        batch = batch_by((last.producer_id, 0), last.sequence, last.value, at_ms=NOW_MS, transactional=False)
        try:
            partition.append(batch, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=last.outcomes.append)
        except KafkaError:
            last.is_refused = True


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.trace = [f"SEED={seed}"]
        self.is_durable = self.rng.random() < 0.5  # whether the topic has flush.messages=1
        self.disk = FakeDisk()
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.scene = BrokerScene(self.disk, "/data")
        settings = {"flush_messages": 1} if self.is_durable else {}
        self.scene.topic("t", segment_bytes=self.rng.choice([300, 1000, 1 << 20]), **settings)
        self.producers = [Producer(producer_id) for producer_id in range(1, 4)]
        self.coordinators: list[SentBatch] = []

    @property
    def partition(self) -> Partition:
        return self.scene.partition("t")

    def step(self) -> None:
        action = self.rng.choices(
            [self.produce, self.tick, self.thread, self.coordinate, self.fault], [50, 25, 20, 10, 4]
        )[0]
        self.trace.append(action.__name__)
        action()

    def produce(self) -> None:
        self.rng.choice(self.producers).send(self.partition)

    def tick(self) -> None:
        self.scene.tick.run()

    def thread(self) -> None:
        if self.scene.workers.jobs:
            self.scene.workers.finish_one()

    def coordinate(self) -> None:
        sent = SentBatch(-1, -1, b"coordinator/%d" % len(self.coordinators))
        self.coordinators.append(sent)
        batch = build_batch([NewRecord(b"k", sent.value, NOW_MS)])
        try:
            appended = self.partition.append_now(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS)
        except KafkaError:
            sent.is_refused = True
            return
        self.partition.when_durable(appended.last_offset + 1, sent.outcomes.append)

    def fault(self) -> None:
        self.disk.fail(self.rng.randint(1, 3), self.rng.choice(list(Fault)))

    def all_sent(self) -> list[SentBatch]:
        return [sent for producer in self.producers for sent in producer.sent] + self.coordinators

    def check(self, disk: FakeDisk, what: str) -> None:
        after = BrokerScene(disk, "/data")
        after.image.topics.update(self.scene.image.topics)
        after.partitions.open_all()
        found = values_in(after.partition("t"))
        context = "\n".join([*self.trace, what])
        for sent in self.all_sent():
            times = found.count(sent.value)
            assert times == 1 or not sent.is_acknowledged, f"{sent} is there {times} times\n{context}"
            assert times <= 1, f"{sent} is there {times} times\n{context}"
        for producer in self.producers:
            own = [value for value in found if value.startswith(b"%d/" % producer.producer_id)]
            assert own == [sent.value for sent in producer.sent[: len(own)]], f"out of order\n{context}"


def values_in(partition: Partition) -> list[bytes]:
    values = []
    for portion in partition.log.reader.scan(partition.log.log_start_offset):
        for position, header in batches(portion):
            for record in records_of(portion[position : position + header.size_bytes]):
                assert record.value is not None
                values.append(record.value)
    return values


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_survive_kills_and_if_synced_power_failures(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.disk.heal()
    world.check(world.disk.after_kill(), "killed")
    if world.is_durable:
        for state in world.disk.after_power_failure(seed):
            world.check(state.disk, state.name)


@pytest.mark.parametrize("seed", SEEDS[:50])
def test_every_request_is_answered_once_the_world_has_settled(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.scene.settle()
    waiting = [sent for sent in world.all_sent() if sent.is_waiting]
    assert waiting == [], "\n".join(world.trace)
