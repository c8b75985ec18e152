"""A world in which a thread checks batches while another connection ends their transaction.

Producers use the new protocol at any transaction.version, as any client may: they rely on the broker to add partitions
(Produce v12), and end transactions with EndTxn v4 or v5. Threads are busy, and a producer may abandon a batch and end
its transaction.
"""

from dataclasses import replace
from random import Random

from odradek.protocol.compression import Compression
from odradek.storage.validation import CHEAP_COMPRESSED_BYTES
from tests.simulation.network import Weather
from tests.simulation.plan import Plan
from tests.simulation.producers import TRIES, Batch, Producer, Script
from tests.simulation.simulated_broker import Parts
from tests.simulation.transaction_world import ANSWER_TIMEOUT_MS, DATA_PARTITIONS, World
from tests.simulation.virtual_time import VirtualWorkers


class BusyWorkers(VirtualWorkers):
    """Workers whose jobs sometimes take longer than a client waits."""

    takes_ms = (0, 0.1, 5, 5, ANSWER_TIMEOUT_MS, 1.5 * ANSWER_TIMEOUT_MS)


class ImpatientProducer(Producer):
    """A producer that may abandon a batch. Half of its batches are too large to be checked on the event loop."""

    def speak(self, *, end_version: int) -> None:
        self._end_version = end_version

    @property
    def may_be_late(self) -> bool:
        return False  # Below level 2 the producer's epoch does not change.

    def _transaction(self) -> Script:
        self._tries = self._rng.choice([1, 1, TRIES])
        pair = self._pair
        yield from super()._transaction()
        if self._pair == pair and self._tries == 1:
            # There may be an abandoned batch, so the producer starts again with a new epoch.
            yield from self._initialise()

    def _records(self, batch: Batch, key: bytes = b"k", compression: Compression = Compression.NONE) -> bytearray:
        rng = Random(batch.values[0])
        if rng.random() < 0.5:
            return super()._records(batch)
        return super()._records(batch, rng.randbytes(CHEAP_COMPRESSED_BYTES), Compression.LZ4)


class ThreadWorld(World):
    least_segment_bytes = 1 << 20

    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        rng = Random(f"plan {seed}")
        self.level = rng.choice([2, 1, 0])
        plan = Plan(
            level=self.level,
            is_durable=False,
            crashes_every_ms=rng.choice([None, 5_000]),
            faults_every_ms=None,
            weather=rng.choice([Weather(0, 0, 0), Weather()]),
            is_compacting=False,
        )
        super().__init__(seed, replace(parts or Parts(), workers=BusyWorkers), plan)
        # Several transactions may have the same epoch.
        self.speaks_new = dict.fromkeys(self.transactional_ids, False)
        self.invariants.bumping.clear()

    def _new_producer(self, name: str, transactional_id: str) -> Producer:
        producer = ImpatientProducer(
            name, transactional_id, self.rng, self.book, DATA_PARTITIONS, is_new=True, now_ms=self.time.now_ms
        )
        producer.speak(end_version=4 if self.level == 2 else self.rng.choice([4, 5]))
        return producer

    def _upgrade(self) -> None:
        """Does nothing, because the level of transaction.version does not change."""
