"""A world of share groups: workers that acknowledge in transactions, and members of a plain group on the same topic.

The world has all faults of `transaction_world`: the broker is killed at random disk calls, and the power fails;
requests, responses and markers are lost, delayed and repeated; producers die and are replaced. In addition, members
join and leave, connections close, and locks expire during transactions. `odradek.share.transactions` is lowered while
nothing is pending, and raised again.

At the end, every input either has exactly one visible output, or has none and was delivered as often as the limit
allows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS, SHARE_TRANSACTIONS_LEVEL
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.errors import KafkaError
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from odradek.storage.log import Origin
from tests.simulation.plan import Plan, broker_config
from tests.simulation.producers import NO_PAIR, Ask, Producer
from tests.simulation.share_requests import ACCEPT
from tests.simulation.share_stage import SETTINGS, ClientKnowledge, ShareStage, ShareStory
from tests.simulation.share_workers import Ledger, PlainMember, Sharer, Worker
from tests.simulation.simulated_broker import Parts
from tests.simulation.transaction_world import DATA_PARTITIONS, NOW_MS, World

TOPIC, WORKERS, READERS = "tasks", "workers", "readers"
PARTITIONS, INPUTS = 2, 60
LIMIT, LOCK_MS, SESSION_MS = 10, 1_500, 4_000
PLAIN_IDS = ("plain-0", "plain-1")
UPDATE_FEATURES_VERSION, DOWNGRADE = 1, 2  # DOWNGRADE is a value of `upgrade_type`.


class Afterwards(ShareStage):
    """A stage that continues with the world's last broker."""

    def __init__(self, world: ShareWorld) -> None:
        assert world.broker is not None
        self.disk, self.time, self.broker = world.disk, world.time, world.broker
        self.is_durable, self.is_two_phase, self.dies_at_call = True, False, None
        self.pair, self.sequences = NO_PAIR, {}
        self.topic_id = world.topic_id


class ShareWorld(World):
    least_segment_bytes = 2_000  # A segment must have room for all records that a heartbeat writes.

    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        rng = Random(f"shares {seed}")
        self.downgrades_every_ms = rng.choice([None, 700, 2_500])
        self.ledgers = {group: Ledger(group, TOPIC, LOCK_MS, LIMIT) for group in (WORKERS, READERS)}
        super().__init__(seed, parts, replace(Plan.drawn(rng), level=2))
        self.speaks_new = dict.fromkeys([*self.transactional_ids, *PLAIN_IDS], True)

    def _broker_config(self) -> BrokerConfig:
        settings = SETTINGS | {
            "group_share_record_lock_duration_ms": str(LOCK_MS),
            "group_share_delivery_count_limit": str(LIMIT),
            "group_share_min_session_timeout_ms": "1000",
            "group_share_session_timeout_ms": str(SESSION_MS),
            "log_cleaner_backoff_ms": "150",
            "log_flush_offset_checkpoint_interval_ms": "2000",
            "log_cleaner_enable": str(self.plan.is_compacting).lower(),
        }
        return broker_config(self.plan.is_durable, **settings)

    def _build(self) -> None:
        super()._build()
        broker = self.broker
        assert broker is not None
        state = internal_topic(SHARE_GROUP_STATE, self.config)
        assert state is not None
        broker.auto_creation.create([NewTopic(TOPIC, PARTITIONS, 1), state])
        broker.metadata.commit([self._level(SHARE_TRANSACTIONS_LEVEL), *map(self._from_the_start, self.ledgers)])
        self._pass(500, check=False)
        self.topic_id = broker.metadata.image.topics[TOPIC].topic_id
        for number in range(INPUTS // 2):
            records = [NewRecord(None, b"task", NOW_MS)] * 2
            partition = broker.partition(TOPIC, number % PARTITIONS)
            partition.append_now(build_batch(records), origin=Origin.CLIENT, now_ms=NOW_MS)
        self._pass(100, check=False)
        self._calm_restart()

    def _level(self, level: int) -> FeatureLevelRecord:
        return FeatureLevelRecord(name=SHARE_TRANSACTIONS, feature_level=level)

    def _from_the_start(self, group: str) -> ConfigRecord:
        kind, name = ConfigResourceType.GROUP.value, "share.auto.offset.reset"
        return ConfigRecord(resource_type=kind, resource_name=group, name=name, value="earliest")

    def run(self) -> None:
        for name in PLAIN_IDS:
            self.time.after(0, partial(self._start_producer, name), self.life)
        self._every(self.downgrades_every_ms, self._downgrade)
        super().run()

    def _new_producer(self, name: str, transactional_id: str) -> Producer:
        is_plain = transactional_id in PLAIN_IDS
        sharer = Sharer(name, self.ledgers[READERS if is_plain else WORKERS], self, self.rng, self.time.now_ms)
        args: tuple[Any, ...] = (name, transactional_id, self.rng, self.book, DATA_PARTITIONS)
        if is_plain:
            return PlainMember(*args, now_ms=self.time.now_ms, sharer=sharer)
        return Worker(*args, now_ms=self.time.now_ms, sharer=sharer, topic_id=self.topic_id)

    def _is_connected(self, producer: Producer, ask: Ask, connection: int) -> bool:
        if not ask.client:
            return super()._is_connected(producer, ask, connection)
        assert isinstance(producer, Worker | PlainMember)
        return ask.client == producer.sharer.client

    def disconnect(self, client: str) -> None:
        """Closes a connection. The broker notices this immediately or a little later."""

        def noticed() -> None:
            if self.broker is not None:
                self.broker.disconnect(client)

        self.time.after(self.rng.choice([0, 1, 300]), noticed, self.life)

    # --- Faults.

    def _crashed(self) -> None:
        super()._crashed()
        for ledger in self.ledgers.values():
            ledger.locks.clear()

    def _upgrade(self) -> None:
        """Does nothing, because transaction.version is 2 from the start."""

    def _downgrade(self) -> None:
        """Tries to lower the level of `odradek.share.transactions`. The broker accepts this only while nothing is
        staged."""
        if self.broker is None:
            return
        update = FeatureUpdateKey(feature=SHARE_TRANSACTIONS, max_version_level=0, upgrade_type=DOWNGRADE)
        request = UpdateFeaturesRequest(feature_updates=[update])
        self.broker.receive(request_bytes(request, UPDATE_FEATURES_VERSION, 1, "admin"), lambda answer: None)
        self.time.after(self.rng.choice([100, 400]), self._raise_again, self.life)

    def _raise_again(self) -> None:
        if self.broker is None:
            return
        self._check_drained()
        self.broker.metadata.commit([self._level(SHARE_TRANSACTIONS_LEVEL)])

    def _check_drained(self) -> None:
        assert self.broker is not None
        if self.broker.metadata.image.features.get(SHARE_TRANSACTIONS, 0) >= SHARE_TRANSACTIONS_LEVEL:
            return
        try:
            staged = self.broker.share_coordinator.pending_count()
        except KafkaError:
            return  # The coordinator is loading.
        assert not staged, f"{staged} acknowledgements are staged at odradek.share.transactions 0"
        self.note("odradek.share.transactions was 0")

    def _look(self) -> None:
        super()._look()
        self._check_outputs()

    def _check_outputs(self) -> Counter[tuple[int, int]]:
        """Returns the number of visible outputs of each input."""
        inputs = self.ledgers[WORKERS].inputs
        found = Counter(inputs[value] for values in self.invariants.visible.values() for value in values)
        twice = [record for record, count in found.items() if count > 1]
        assert not twice, f"{twice} were processed twice"
        return found

    # --- The end of the run.

    def _decide_the_rest(self) -> None:
        broker = self.broker
        assert broker is not None
        broker.metadata.commit([self._level(SHARE_TRANSACTIONS_LEVEL)])
        self._pass(100)

    def _look_at_the_end(self) -> None:
        super()._look_at_the_end()
        assert self.broker is not None
        left = self.broker.share_coordinator.pending_count() + self.broker.shares.held_count
        assert not left, f"{left} acknowledgements are staged without end"
        found = self._check_outputs()
        workers, readers = self.ledgers[WORKERS], self.ledgers[READERS]
        missing = workers.finished - found.keys()
        assert not missing, f"{missing} were committed, and their outputs cannot be seen"
        stage = Afterwards(self)
        story = self._story(stage, workers)
        before = set(found)
        story.begin()
        drained = self._drain(story, in_transaction=True)
        again = before & drained
        assert not again, f"{again} have an output, and were delivered again"
        lost = self._all - before - drained - workers.used_up
        assert not lost, f"{lost} have no output, and are not delivered any more"
        drained = self._drain(self._story(stage, readers), in_transaction=False)
        lost = self._all - readers.finished - readers.maybe - drained - readers.used_up
        assert not lost, f"{lost} are not delivered any more to a plain member"

    @property
    def _all(self) -> set[tuple[int, int]]:
        return {(partition, offset) for partition in range(PARTITIONS) for offset in range(INPUTS // PARTITIONS)}

    def _story(self, stage: ShareStage, ledger: Ledger) -> ShareStory:
        known = ClientKnowledge(finished=set(ledger.finished), restarts=1_000)
        return ShareStory(stage, known, ledger.group)

    def _drain(self, story: ShareStory, *, in_transaction: bool) -> set[tuple[int, int]]:
        """Receives and acknowledges the remaining records with an undisturbed member. Returns the records."""
        drained: set[tuple[int, int]] = set()
        last = story.member("last")
        while last.held or story.fetch("last", 5):
            drained |= set(last.held)
            if in_transaction:
                assert story.stage_some("last", 5), "the last worker cannot acknowledge"
                assert story.end(commit=True), "the last worker cannot commit"
            else:
                story.acknowledge("last", 5, ACCEPT)
        return drained
