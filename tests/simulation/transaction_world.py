"""A world of transactional producers in which the broker, the network and the disk all fail. The broker is killed, the
network loses and delays messages, and disk calls fail. Producers die, or sleep and are replaced in the meantime.

One seed determines all of this. If an invariant is violated, `World(seed).run()` raises AssertionError with the trace.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.broker.transactions.entry import MAX_EPOCH, Txn
from odradek.broker.transactions.records import encode_record
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.records import NewRecord, batches, build_batch
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.checker.anomalies import anomalies
from tests.checker.history import (
    Answer,
    CommitAnswered,
    CommitRequested,
    ConsumerPositioned,
    Event,
    ReachedEnd,
    RecordSent,
    RecordsPolled,
    TopicPartition,
)
from tests.simulation.far_markers import far_markers
from tests.simulation.invariants import Invariants, ask_for_offset, committed_records
from tests.simulation.network import Network
from tests.simulation.plan import Plan, broker_config
from tests.simulation.producers import INPUT, Ask, Book, Producer, Script
from tests.simulation.simulated_broker import Parts, SimulatedBroker
from tests.simulation.virtual_time import Life, VirtualTime
from tests.support.fake_disk import FakeDisk, Fault, ProcessCrashed
from tests.support.transaction_listing import all_listed

NOW_MS = 1_800_000_000_000
DATA_PARTITIONS: list[TopicPartition] = [("orders", 0), ("orders", 1), ("mail", 0)]
OFFSET_PARTITIONS: list[TopicPartition] = [(GROUP_OFFSETS, 0), (GROUP_OFFSETS, 1)]
ANSWER_TIMEOUT_MS = 400
FETCH_VERSION = 12
OLD_PRODUCER_ID = 5_000_000  # a producer id from an earlier life of the broker
QUIET_MS = 120_000  # longer than any transaction timeout and any delay of a message


class World:
    may_repeat_ends = False  # see `Network`
    least_segment_bytes = 0

    def __init__(self, seed: int, parts: Parts | None = None, plan: Plan | None = None) -> None:
        self.rng = rng = Random(seed)
        drawn = Plan.drawn(rng)
        self.plan = plan or drawn
        self.trace = [f"SEED={seed} {self.plan}"]
        self.parts = parts or rng.choice([Parts(), Parts(markers=far_markers)])
        self.time = VirtualTime(NOW_MS)
        self.life = Life()
        self.config = self._broker_config()
        self.log_changes = {
            "segment_bytes": max(
                rng.choice([300, 2_000] if self.plan.is_compacting else [300, 2_000, 1 << 20]), self.least_segment_bytes
            ),
            "min_cleanable_dirty_ratio": 0.0,
            "delete_retention_ms": rng.choice([0, 1_000]),
            "file_delete_delay_ms": 100,
        }
        self.book = Book()
        self.transactional_ids = [f"id-{number}" for number in range(rng.randint(1, 4))]
        self.speaks_new = {each: self.plan.level == 2 and rng.random() < 0.8 for each in self.transactional_ids}
        self.groups = [f"group of {each}" for each in self.transactional_ids]
        self.invariants = Invariants(self.book, DATA_PARTITIONS + OFFSET_PARTITIONS, self.groups)
        self.network = Network(
            self.time, rng, self.plan.weather, lambda: self.broker, self.note, may_repeat_ends=self.may_repeat_ends
        )
        self.disk = FakeDisk()
        self.broker: SimulatedBroker | None = None
        self.disturbances = 0
        self.was_power_lost = False
        self.producers = 0
        self.reads: list[Event] = []
        self._build()

    def _broker_config(self) -> BrokerConfig:
        return broker_config(self.plan.is_durable, log_cleaner_enable=str(self.plan.is_compacting).lower())

    @property
    def _may_lose_power(self) -> bool:
        return self.plan.is_durable

    def _build(self) -> None:
        """Starts the broker for the first time and prepares its state before any fault."""
        self.broker = broker = self._start_broker()
        topics = [NewTopic("orders", 2, 1), NewTopic("mail", 1, 1), NewTopic(INPUT, 1, 1)]
        internal = [internal_topic(name, self.config) for name in (TRANSACTION_STATE, GROUP_OFFSETS)]
        broker.auto_creation.create([*topics, *[each for each in internal if each is not None]])
        broker.metadata.commit([FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=self.plan.level)])
        self._pass(1_000, check=False)
        if self.rng.random() < 0.3:
            self._age(self.rng.choice(self.transactional_ids))

    def _age(self, transactional_id: str) -> None:
        """Gives the transactional id a producer id with few epochs left."""
        broker = self.broker
        assert broker is not None
        record = encode_record(self._aged(transactional_id, MAX_EPOCH - self.rng.randint(1, 12)), 1)
        partition = broker.partition(TRANSACTION_STATE, broker.transactions.partition_for(transactional_id))
        partition.append_now(build_batch([NewRecord(*record, NOW_MS)]), origin=Origin.COORDINATOR, now_ms=NOW_MS)
        if self.speaks_new[transactional_id]:
            self.invariants.bumping.add(OLD_PRODUCER_ID)
        self._calm_restart()

    def _aged(self, transactional_id: str, epoch: int) -> Txn:
        return Txn(transactional_id, OLD_PRODUCER_ID, epoch, 1_000, updated_ms=NOW_MS)

    # --- The run.

    def run(self) -> None:
        try:
            for transactional_id in self.transactional_ids:
                self._start_producer(transactional_id)
            self._every(self.plan.crashes_every_ms, self._prepare_crash)
            self._every(self.plan.faults_every_ms, self._fault)
            self._every(2_500, self._replace_producer)
            self.time.after(self.rng.randint(1_000, self.plan.duration_ms), self._upgrade, self.life)
            self._every(3_000, self._look)
            self._pass(self.plan.duration_ms)
            self._settle()
        except AssertionError as failure:
            raise AssertionError("\n".join([*self.trace, self.trace[0], str(failure)])) from failure
        finally:
            if self.broker is not None:
                self.broker.kill()

    @property
    def fingerprint(self) -> str:
        """Returns a digest of all events in the run."""
        return sha256("\n".join(self.trace).encode()).hexdigest()

    def note(self, what: str) -> None:
        self.trace.append(f"{self.time.now_ms() - NOW_MS} {what}")

    def _pass(self, duration_ms: int, *, check: bool = True) -> None:
        until_ms = self.time.now_ms() + duration_ms
        while True:
            try:
                if not self.time.step(until_ms):
                    return
            except ProcessCrashed:
                self._crashed()
            if check and self.broker is not None:
                self.invariants.check(self.broker)

    def _every(self, interval_ms: int | None, action: Callable[[], None]) -> None:
        if interval_ms is None:
            return

        def happen() -> None:
            action()
            self._every(interval_ms, action)

        self.time.after(self.rng.expovariate(1 / interval_ms), happen, self.life)

    # --- Producers.

    def _start_producer(self, transactional_id: str) -> None:
        self.producers += 1
        producer = self._new_producer(f"{transactional_id}#{self.producers}", transactional_id)
        self._go_on(producer, producer.script(), None)

    def _new_producer(self, name: str, transactional_id: str) -> Producer:
        return Producer(
            name,
            transactional_id,
            self.rng,
            self.book,
            DATA_PARTITIONS,
            is_new=self.speaks_new[transactional_id],
            now_ms=self.time.now_ms,
        )

    def _replace_producer(self) -> None:
        """Starts another producer with a transactional id. The old producer continues until a response reveals that it
        has been replaced."""
        self._start_producer(self.rng.choice(self.transactional_ids))

    def _go_on(self, producer: Producer, script: Script, answers: list[Any] | None) -> None:
        try:
            step = next(script) if answers is None else script.send(answers)
        except StopIteration:
            self.note(f"{producer.name} is over")
            delay_ms = self.rng.choice([10, 300])
            self.time.after(delay_ms, lambda: self._start_producer(producer.transactional_id), self.life)
            return
        if isinstance(step, int):
            self.time.after(step, lambda: self._go_on(producer, script, []), self.life)
            return
        self._ask(producer, script, step)

    def _ask(self, producer: Producer, script: Script, requests: Sequence[Ask]) -> None:
        answers: list[Message | None] = [None] * len(requests)
        missing = set(range(len(requests)))
        connection, broker = producer.connection, self.broker

        def go_on() -> None:
            missing.clear()
            timeout.cancel()
            self._go_on(producer, script, list(answers))

        def answered(number: int, answer: Message) -> None:
            if number not in missing or (requests[number].client and self.broker is not broker):
                return  # The response is late or repeated, or its connection was lost with the broker.
            self._note_answer(producer, answer)
            answers[number] = answer
            missing.discard(number)
            if not missing:
                go_on()

        timeout = self.time.after(ANSWER_TIMEOUT_MS, go_on, self.life)
        for number, ask in enumerate(requests):
            is_connected = partial(self._is_connected, producer, ask, connection)
            self.network.send(
                producer.name, ask.message, ask.version, partial(answered, number), is_connected, ask.client
            )

    def _is_connected(self, producer: Producer, ask: Ask, connection: int) -> bool:
        return producer.may_be_late or producer.connection == connection

    def _note_answer(self, producer: Producer, answer: Any) -> None:
        codes = sorted(set(error_codes(answer)))
        self.note(f"{producer.name} ← {type(answer).__name__} {[ErrorCode(code).name for code in codes]}")
        assert ErrorCode.UNKNOWN_SERVER_ERROR.value not in codes, "a bug in the broker"
        if hasattr(answer, "producer_id") and self.speaks_new[producer.transactional_id]:
            self.invariants.bumping.add(answer.producer_id)

    # --- Faults.

    def _prepare_crash(self) -> None:
        """Kills the broker during one of its next disk calls, or immediately."""
        if self.broker is None:
            return
        self.disk.crash_before(self.rng.choice([1, 1, 2, 3, 5, 8, 13]), half_write=self.rng.random() < 0.3)
        self.note("a crash is near")

    def _crashed(self) -> None:
        self.disturbances += 1
        if self.broker is not None:
            self.broker.kill()
            self.broker = None
        is_power_lost = self._may_lose_power and self.rng.random() < 0.5
        if is_power_lost:
            states = list(self.disk.after_power_failure(self.rng.randrange(1 << 30)))
            state = self.rng.choice(states)
            self.disk = state.disk
            self.reads.clear()
        else:
            self.disk = self.disk.after_kill()
        self.note(f"the broker is killed{', the power has failed' if is_power_lost else ''}")
        self.was_power_lost |= is_power_lost
        if self.rng.random() < 0.15:
            self.disk.crash_before(self.rng.randint(1, 40))
        self.time.after(self.rng.choice([0, 20, 500]), self._restart, self.life)

    def _restart(self) -> None:
        self.note("the broker starts")
        self.broker = self._start_broker()
        self.invariants.restarted(was_power_lost=self.was_power_lost)
        self.was_power_lost = False

    def _start_broker(self) -> SimulatedBroker:
        return SimulatedBroker(
            self.disk,
            self.time,
            self.rng,
            self.config,
            log_changes=self.log_changes,
            parts=self.parts,
        )

    def _fault(self) -> None:
        if self.broker is None:
            return
        fault = self.rng.choice(list(Fault))
        calls = self.rng.choice([1, 1, 3])
        self.disk.fail_from(self.rng.randint(1, 4), fault, calls)
        self.disturbances += 1
        self.note(f"the disk fails {calls} times: {fault.name}")
        # After a failed fsync, a log accepts nothing until the process is restarted.
        self.time.after(self.rng.choice([100, 1_500]), self._mend, self.life)

    def _mend(self) -> None:
        if self.broker is None:
            return
        self.disk.heal()
        self._crashed()

    def _upgrade(self) -> None:
        """Raises transaction.version while old clients are active. This must not affect them."""
        if self.broker is not None and self.plan.level < 2:
            self.note("transaction.version is 2 from now on")
            self.broker.metadata.commit([FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=2)])

    # --- Observations.

    def _look(self) -> None:
        if self.broker is not None and not self.plan.is_durable:
            self._read_all(f"reader {len(self.reads)}", is_end=False)

    def _read_all(self, consumer: str, *, is_end: bool) -> None:
        """Reads everything from the start with Fetch, like a read_committed consumer."""
        assert self.broker is not None
        for topic, index in DATA_PARTITIONS:
            self.reads.append(ConsumerPositioned(consumer, (topic, index), 0))
            offset = 0
            while True:
                data, aborted = self._fetch(topic, index, offset)
                if not data:
                    break
                records = list(committed_records(data, aborted))
                self.reads.append(
                    RecordsPolled(consumer, (topic, index), [each for each in records if each[0] >= offset])
                )
                offset = next_offset(data)
            if is_end:
                self.reads.append(ReachedEnd(consumer, (topic, index)))

    def _fetch(self, topic: str, index: int, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
        assert self.broker is not None
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=1, topics=[FetchTopic(topic=topic, partitions=[partition])]
        )
        answers: list[bytes] = []
        self.broker.receive(request_bytes(request, FETCH_VERSION, 1, "reader"), answers.append)
        if not answers:
            return b"", []
        answer = decode(FetchResponse, FETCH_VERSION, answers[0], 9)
        fetched = answer.responses[0].partitions[0]
        assert not fetched.error_code, ErrorCode(fetched.error_code)
        aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions or ()]
        return bytes(fetched.records or b""), aborted  # type: ignore[arg-type]  # one buffer, when it was decoded

    # --- The end of the run.

    def _settle(self) -> None:
        """Stops all faults and waits until open transactions have timed out and decided ones are complete."""
        repeated = self.invariants.markers_repeated
        if self.parts.markers is not far_markers:
            assert not repeated or self.disturbances, f"{repeated} markers were written twice"
        self.note("everything settles")
        self.life.is_over = True
        self.life = Life()
        self.network.close()
        self.disk.heal()
        if self.broker is None:
            self.disk = self.disk.after_kill()
            self._restart()
        else:
            self._calm_restart()
        self._pass(QUIET_MS)
        self._decide_the_rest()
        self._look_at_the_end()

    def _decide_the_rest(self) -> None:
        """Ends the transactions that only their owners can end. This world has none, but its subclasses do."""

    def _calm_restart(self) -> None:
        assert self.broker is not None
        self.broker.kill()
        self.disk = self.disk.after_kill()
        self._restart()

    def _look_at_the_end(self) -> None:
        broker = self.broker
        assert broker is not None
        self.invariants.check(broker)
        self.invariants.missing_after_restart()
        for topic, index in DATA_PARTITIONS + OFFSET_PARTITIONS:
            log = broker.partition(topic, index).log
            assert log.last_stable_offset == log.high_watermark, f"{topic}-{index} is stuck"
        for listed in all_listed(broker.transactions):
            state = listed.transaction_state
            assert state in ("Empty", "CompleteCommit", "CompleteAbort"), f"{listed} is stuck"
        self._read_all("the last reader", is_end=True)
        found = anomalies(self.history(), once=True)
        assert not found, "\n".join(map(str, found))
        self._check_offsets(broker)

    def history(self) -> list[Event]:
        events: list[Event] = []
        for attempt in self.book.attempts:
            for batch in attempt.batches:
                for number, value in enumerate(batch.values):
                    offset = None if batch.base_offset is None else batch.base_offset + number
                    events.append(
                        RecordSent(attempt.producer, batch.partition, value, batch.answer, attempt.name, offset)
                    )
            if attempt.is_asked:
                events += [CommitRequested(attempt.name), CommitAnswered(attempt.name, attempt.answer)]
        return events + self.reads

    def _check_offsets(self, broker: SimulatedBroker) -> None:
        """Checks that each group's committed offset agrees with the outcomes of its transactions."""
        visible = {value for values in self.invariants.visible.values() for value in values}
        for group in self.groups:
            answers: list[int] = []
            ask_for_offset(broker, group, answers.append)
            self._pass(100)
            assert answers, f"the offset of {group} cannot be had"
            (committed,) = answers
            for attempt in self.book.attempts:
                if attempt.group != group or attempt.offset is None or attempt.offset_answer is not Answer.YES:
                    continue
                values = [value for batch in attempt.batches for value in batch.values]
                is_committed = attempt.answer is Answer.YES or any(value in visible for value in values)
                if is_committed:
                    assert committed >= attempt.offset, (
                        f"{group} is at {committed}, though {attempt.name} took it further"
                    )
                elif attempt.offset == committed:
                    assert not values, f"{group} is at {committed}, but no record of {attempt.name} is there"


def failure_of(world: World) -> AssertionError | None:
    """Runs the world. Returns the error if the run fails, or None if it succeeds."""
    try:
        world.run()
    except AssertionError as failure:
        return failure
    return None


def error_codes(answer: Any) -> list[int]:
    """Returns all error codes that the response contains."""
    found = []
    for name in type(answer).__slots__:
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.append(value)
        elif isinstance(value, list):
            found += [code for each in value if hasattr(type(each), "__slots__") for code in error_codes(each)]
    return found


def next_offset(data: bytes) -> int:
    return max(header.last_offset for _, header in batches(data)) + 1
