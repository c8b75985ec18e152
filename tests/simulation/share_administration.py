"""Compares share groups with a model while administrators change them and acknowledgements are pending in transactions.

Every administrative request is tried, with restarts in between. The broker is the real one with its logs on a fake
disk, and requests and responses are encoded. No message is lost, and each request is answered before the next one is
sent, so the model can predict the result of every step. A record is in one of these states:

    AVAILABLE   It may be delivered to any member.
    ACQUIRED    A member holds it until its lock expires, its session ends, or the broker dies.
    PENDING     A transaction holds it. Until the transaction ends, it is neither delivered nor accepted.
    DONE        It is acknowledged, and is delivered again only if an administrator moves the group back.
    COMING_BACK Its transaction was aborted after its member had ended one session and begun another. The broker may
                have forgotten that the first session ended, so the member may hold the record until its lock
                expires.
    AT_LIMIT    It is available but has been delivered as often as the limit allows, so the broker may archive it.

After each step the stored state of every share partition is compared with the model, record by record. The pending
records with their transactions, and the finished records, must agree. At the end, one more member joins and receives
all remaining records. Rules: docs/spec/share-groups.md#s2-8, #s5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Any

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS
from odradek.broker.shares.core.state import SharePartitionKey, StoredState
from odradek.broker.transactions.tables import TxnState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import SHARE_GROUP_STATE, TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.simulation import share_requests as requests
from tests.simulation.share_requests import ACCEPT, REJECT, RELEASE, Kinds, Record
from tests.simulation.share_stage import QUEUE, TOPIC, ShareStage
from tests.support.fake_disk import ProcessCrashed

E = ErrorCode
GROUPS = (QUEUE, "others")
MEMBERS = {QUEUE: ("A", "B"), "others": ("C",)}
PARTITIONS = 2
LOCK_MS, MEMBER_MS, BEAT_MS = 20_000, 60_000, 10_000
LIMIT = 10
TIMEOUTS_MS = {"pay": 50_000, "bill": 15_000, "doubt": 0}  # "doubt" requests two-phase commits, which have no timeout.
FINISHED = frozenset({2, 4})  # delivery states in the log
SETTINGS = {
    "group_share_record_lock_duration_ms": str(LOCK_MS),
    "group_share_session_timeout_ms": str(MEMBER_MS),
    "group_share_max_session_timeout_ms": str(MEMBER_MS),
    "transactional_id_expiration_ms": str(7 * 24 * 3600 * 1000),
    "log_flush_offset_checkpoint_interval_ms": "500",
}
FENCED = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_TXN_STATE, E.INVALID_PRODUCER_ID_MAPPING})


class State(Enum):
    AVAILABLE = auto()
    ACQUIRED = auto()
    PENDING = auto()
    DONE = auto()
    COMING_BACK = auto()
    AT_LIMIT = auto()


ABORTED = frozenset({TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT})
DELIVERABLE = frozenset({State.AVAILABLE, State.COMING_BACK, State.AT_LIMIT})
LOCKED = frozenset({State.ACQUIRED, State.PENDING, State.COMING_BACK})


@dataclass(slots=True)
class Txn:
    """An open transaction. `serial` distinguishes it from other transactions of the same transactional id.

    lock_over_ms  time at which the first lock of its records expires, including records that have been deleted since
    """

    transactional_id: str
    serial: int
    pair: tuple[int, int]
    started_ms: int
    lock_over_ms: int = 1 << 62


@dataclass(slots=True)
class Rec:
    """A record of a share partition.

    session  session of the member that holds the record; other sessions cannot use the record
    counts   minimum and maximum of the delivery count, because a restart forgets deliveries that were not stored
    over_ms  earliest and latest possible expiry time of its lock
    """

    state: State = State.AVAILABLE
    counts: tuple[int, int] = (0, 0)
    holder: str = ""
    session: int = 0
    over_ms: tuple[int, int] = (0, 0)
    txn: Txn | None = None


@dataclass(slots=True)
class Member:
    group: str
    name: str
    epoch: int = requests.JOIN
    session: int = requests.OPEN  # session epoch of its next request
    serial: int = 0  # number of the member's current session
    is_first: bool = True  # whether the next heartbeat must contain the topics

    @property
    def is_in(self) -> bool:
        return self.epoch > 0


@dataclass(slots=True)
class Producer:
    """A transactional producer.

    pair     producer id and epoch of its next request; None until it is initialised
    zombies  producer ids and epochs that newer ones have replaced
    ended    markers that were sent, as (pair, whether it commits)
    """

    transactional_id: str
    pair: tuple[int, int] | None = None
    txn: Txn | None = None
    is_kept: bool = False  # whether a recovery has taken over its prepared transaction, which it can then only end
    zombies: list[tuple[int, int]] = field(default_factory=list)
    ended: list[tuple[tuple[int, int], bool]] = field(default_factory=list)

    @property
    def is_two_phase(self) -> bool:
        return TIMEOUTS_MS[self.transactional_id] == 0


class Administration:
    def __init__(self, seed: int) -> None:
        self.rng = Random(f"administration {seed}")
        self.stage = ShareStage(is_two_phase=True, settings=SETTINGS)
        self.trace: list[str] = []
        self.level = 1  # level of odradek.share.transactions
        self.limit = LIMIT
        self.places: dict[tuple[str, int], dict[int, Rec]] = {
            (group, index): {} for group in GROUPS for index in range(PARTITIONS)
        }
        self.members = {name: Member(group, name) for group in GROUPS for name in MEMBERS[group]}
        self.producers = {name: Producer(name) for name in TIMEOUTS_MS}
        self.exists = dict.fromkeys(GROUPS, False)
        self.serials = 0
        self.done_steps = 0
        self.counts: dict[str, int] = {}
        # finds out the outcome of an unanswered request; None if every request was answered
        self.under_way: Callable[[], None] | None = None
        for group in GROUPS:
            self._configure(group, "share.auto.offset.reset", "earliest")
        self._delete_topic()
        self._create_topic()

    # --- The run.

    STEPS: Sequence[tuple[str, int]] = (
        ("produce", 10),
        ("fetch", 20),
        ("acknowledge", 6),
        ("stage_some", 26),
        ("commit", 9),
        ("abort", 6),
        ("race", 4),
        ("touch_pending", 8),
        ("zombie", 3),
        ("fence", 3),
        ("recover", 3),
        ("repeat_marker", 4),
        ("close_session", 3),
        ("disconnect", 3),
        ("leave", 2),
        ("stop_and_administer", 10),
        ("sleep", 4),
        ("alter_offsets", 1),
        ("delete_offsets", 1),
        ("delete_group", 1),
        ("recreate_topic", 1),
        ("delete_records", 3),
        ("configure", 3),
        ("change_version", 3),
        ("restart", 3),
        ("die", 5),
    )

    def run(self, steps: int) -> None:
        names, weights = zip(*self.STEPS, strict=True)
        for _ in range(steps):
            self.step(self.rng.choices(names, weights)[0])
        self.drain()

    def step(self, name: str) -> None:
        if not self.level and self.rng.random() < 0.4:
            name = "change_version"
        self.trace.append(f"{self.now_ms}: {name}")
        self.done_steps += 1
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, name)()
        self.settle()
        self.compare()

    @property
    def now_ms(self) -> int:
        return self.stage.time.now_ms()

    def say(self, words: str) -> None:
        self.trace.append(f"  {words}")

    def check(self, holds: bool, words: str) -> None:
        assert holds, words + "\n" + "\n".join(self.trace[-60:])

    def ask(self, message: Any, version: int, client: str = "admin") -> Any:
        return self.stage.ask(message, version, client)

    def pick(self, of: Sequence[Any]) -> Any:
        return self.rng.choice(of) if of else None

    # --- Time.

    def wait(self, ms: int) -> None:
        """Advances the clock. Members remain in their groups."""
        while ms > 0:
            self.stage.wait(min(ms, BEAT_MS))
            ms -= BEAT_MS
            self._beat_all()

    def _beat_all(self) -> None:
        for member in self.members.values():
            if member.is_in:
                self._beat(member)

    def settle(self) -> None:
        """Waits until it is certain which locks have expired. Updates the model for expired locks, and for transactions
        that the broker has aborted."""
        self.stage.wait(50)
        for _ in range(5):
            now_ms = self.now_ms
            unsure = [
                rec.over_ms[1]
                for _, _, rec in self.records()
                if rec.state in LOCKED and rec.over_ms[0] - 100 <= now_ms <= rec.over_ms[1] + 100
            ]
            if not unsure:
                break
            self.stage.wait(max(unsure) + 101 - now_ms)
        self._locks_run_out()
        self._find_aborted()

    def _locks_run_out(self) -> None:
        for _, _, rec in self.records():
            if rec.state in (State.ACQUIRED, State.COMING_BACK) and rec.over_ms[1] < self.now_ms:
                self._given_back(rec)

    def _find_aborted(self) -> None:
        """Updates the model for transactions that the broker has aborted on its own.

        The broker may do so only after the transaction timeout, or after the lock of a record has expired.
        """
        for producer in self.producers.values():
            txn = producer.txn
            if txn is None:
                continue
            is_late = txn.lock_over_ms < self.now_ms
            is_timed_out = self.now_ms >= txn.started_ms + TIMEOUTS_MS[txn.transactional_id]
            may_be_aborted = not producer.is_two_phase and (is_late or is_timed_out)
            entry = self._entry(producer)
            is_open = entry.state is TxnState.ONGOING and entry.producer_epoch == txn.pair[1]
            self.check(is_open or may_be_aborted, f"{txn} is {entry.state}, and nobody ended it")
            if is_open:
                continue
            self.check(entry.state in ABORTED, f"{txn} is {entry.state}, and nobody committed it")
            for _ in range(40):
                if not self._entry(producer).is_prepared:
                    break
                self.stage.wait(100)
            self.check(self._entry(producer).state is TxnState.COMPLETE_ABORT, f"{txn} was not aborted")
            self.say(f"the broker has aborted {txn}")
            self._ended(producer, commit=False)
            producer.zombies.append(txn.pair)
            producer.pair = None

    def _entry(self, producer: Producer) -> Any:
        name = producer.transactional_id
        return self.stage.broker.transactions.shard_for(name).read_state(lambda core: core.txn(name))

    # --- The model.

    def records(self) -> Iterator[tuple[tuple[str, int], int, Rec]]:
        for place, records in self.places.items():
            for offset, rec in records.items():
                yield place, offset, rec

    def _given_back(self, rec: Rec) -> None:
        rec.state = State.AT_LIMIT if rec.counts[1] >= self.limit else State.AVAILABLE
        rec.holder, rec.txn = "", None

    def _is_held(self, rec: Rec, member: Member) -> bool:
        return (
            rec.state is State.ACQUIRED
            and (rec.holder, rec.session) == (member.name, member.serial)
            and self.now_ms + 3_000 < rec.over_ms[0]
        )

    def held(self, member: Member) -> list[Record]:
        return [
            (index, offset)
            for (group, index), offset, rec in self.records()
            if group == member.group and self._is_held(rec, member)
        ]

    def _rec(self, group: str, record: Record) -> Rec:
        return self.places[group, record[0]][record[1]]

    def _ended(self, producer: Producer, *, commit: bool) -> None:
        assert producer.txn is not None
        for _, _, rec in self.records():
            if rec.state is not State.PENDING or rec.txn is not producer.txn:
                continue
            if commit:
                rec.state, rec.txn = State.DONE, None
                continue
            member = self.members[rec.holder]
            rec.txn = None
            has_session = member.session != requests.OPEN
            if rec.session == member.serial and has_session and self.now_ms < rec.over_ms[0]:
                rec.state = State.ACQUIRED
            elif has_session and self.now_ms < rec.over_ms[1]:
                rec.state = State.COMING_BACK
            else:
                self._given_back(rec)
        producer.txn, producer.is_kept = None, False

    def _begun_anew(self, group: str, index: int, start_offset: int = 0) -> None:
        log = self.stage.broker.partition(TOPIC, index).log
        begin = max(start_offset, log.log_start_offset)
        self.places[group, index] = {offset: Rec() for offset in range(begin, log.log_end_offset)}

    def _lost_session(self, member: Member) -> None:
        member.session = requests.OPEN
        for _, _, rec in self.records():
            if rec.state is State.ACQUIRED and (rec.holder, rec.session) == (member.name, member.serial):
                self._given_back(rec)
        self.serials += 1
        member.serial = self.serials

    # --- Comparison with the broker.

    def stored(self, key: SharePartitionKey) -> StoredState | None:
        return self.stage.broker.share_coordinator.shard_for(key).read_state(lambda core: core.stored_state(key))

    def compare(self) -> None:
        coordinator = self.stage.broker.share_coordinator
        image = self.stage.broker.metadata.image
        topic_id = image.topics[TOPIC].topic_id
        for shard in coordinator.shards:
            for key in shard.read_state(lambda core: core.keys):
                self.check(key.topic_id in image.topics_by_id, f"state of a topic that is gone: {key}")
        total = 0
        for (group, index), records in self.places.items():
            start = self.stage.broker.partition(TOPIC, index).log.log_start_offset
            key = SharePartitionKey(group, topic_id, index)
            stored = self.stored(key)
            what = f"{group} {index}"
            held = {
                offset: (each.transactional_id, (each.producer_id, each.producer_epoch))
                for each in (() if stored is None else stored.pending)
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            total += len(held)
            held = {offset: of for offset, of in held.items() if offset >= start}
            expected = {
                offset: (rec.txn.transactional_id, rec.txn.pair)
                for offset, rec in records.items()
                if rec.state is State.PENDING and rec.txn is not None
            }
            self.check(held == expected, f"{what}: pending are {held}, not {expected}")
            finished = {
                offset
                for each in (() if stored is None else stored.batches)
                if each.delivery_state in FINISHED
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            below = -1 if stored is None else stored.start_offset
            for offset, rec in records.items():
                is_finished = offset < below or offset in finished
                if rec.state is State.DONE:
                    self.check(is_finished, f"{what}: {offset} was acknowledged, and may come back")
                elif rec.state is not State.AT_LIMIT:
                    self.check(not is_finished, f"{what}: {offset} is lost, it was {rec}")
        counted = coordinator.pending_count()
        self.check(counted == total, f"{counted} records are counted as pending, and {total} are")

    # --- Members.

    def _beat(self, member: Member) -> None:
        for _ in range(3):
            request = requests.heartbeat(member.group, member.name, member.epoch, [TOPIC] if member.is_first else None)
            answer = self.ask(request, requests.HEARTBEAT_VERSION, member.name)
            code = E(answer.error_code)
            if code is E.NONE:
                member.epoch, member.is_first = answer.member_epoch, False
                self.exists[member.group] = True
                return
            self.check(code in (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.GROUP_ID_NOT_FOUND), f"{member}: {code}")
            member.epoch, member.is_first = requests.JOIN, True
        self.check(False, f"{member} cannot join")

    def _join(self, member: Member) -> None:
        """Sends heartbeats until the share coordinator has the state of every partition."""
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        keys = [SharePartitionKey(member.group, topic_id, index) for index in range(PARTITIONS)]
        for _ in range(60):
            self._beat(member)
            if all(self.stored(key) for key in keys):
                return
            self.stage.wait(100)
        self.check(False, f"the state of {member.group} is not begun")

    def fetch(self, member: Member | None = None, max_records: int | None = None) -> int:
        member = member or self.pick(list(self.members.values()))
        self._join(member)
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        for _ in range(12):
            sent_ms = self.now_ms
            number = max_records or self.rng.choice([1, 3, 100])
            request = requests.fetch(
                member.group, member.name, member.session, topic_id, range(PARTITIONS), max_records=number
            )
            answer = self.ask(request, requests.FETCH_VERSION, member.name)
            code = E(answer.error_code)
            if code in (E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH):
                self.check(False, f"the session of {member} is not known: {code}")
            self.check(code is E.NONE, f"{member} is told {code}")
            member.session += 1
            self._locks_run_out()
            self._find_aborted()  # The broker may have found an expired lock while loading a share partition.
            acquired = requests.acquired_in(answer)
            for each in acquired:
                self._delivered(member, each.record, each.delivery_count, sent_ms)
            if acquired:
                self.say(f"{member.name} gets {[each.record for each in acquired]}")
                return len(acquired)
            self.stage.wait(50)
        self._locks_run_out()
        left = [
            (index, offset)
            for (group, index), offset, rec in self.records()
            if group == member.group and rec.state is State.AVAILABLE
        ]
        self.check(not left, f"{left} are not delivered to {member.name}")
        return 0

    def _delivered(self, member: Member, record: Record, count: int, sent_ms: int) -> None:
        rec = self.places[member.group, record[0]].get(record[1])
        what = f"{record} is delivered to {member.name} for the {count}. time"
        if rec is None:
            self.check(False, f"{what}, and is not to be delivered at all")
        assert rec is not None
        self.check(rec.state in DELIVERABLE, f"{what}, and is {rec}")
        self.check(rec.counts[0] < count <= rec.counts[1] + 1, f"{what}, and not the {rec.counts}")
        lock_ms = LOCK_MS
        rec.state, rec.holder, rec.session = State.ACQUIRED, member.name, member.serial
        rec.over_ms = sent_ms + lock_ms, self.now_ms + lock_ms
        rec.counts = rec.counts[0], count

    def acknowledge(self) -> None:
        member = self._busy()
        if member is None:
            return
        held = self.held(member)
        chosen = self.rng.sample(held, self.rng.randint(1, len(held)))
        kinds = {record: self.rng.choice([ACCEPT, ACCEPT, RELEASE, REJECT]) for record in chosen}
        codes = self._acknowledge(member, kinds)
        self.say(f"{member.name} acknowledges {kinds}: {codes}")
        self.check(set(codes.values()) == {E.NONE}, f"{member.name} is told {codes}")
        for record, kind in kinds.items():
            rec = self._rec(member.group, record)
            if kind == RELEASE:
                rec.counts = rec.counts[1], rec.counts[1]
                self._given_back(rec)
            else:
                rec.state = State.DONE

    def _acknowledge(self, member: Member, kinds: Kinds) -> dict[int, ErrorCode]:
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        request = requests.acknowledge(member.group, member.name, member.session, topic_id, kinds)
        answer = self.ask(request, requests.ACKNOWLEDGE_VERSION, member.name)
        self.check(not answer.error_code, f"{member} is told {E(answer.error_code)}")
        member.session += 1
        return {index: E(code) for index, code in requests.codes_in(answer).items()}

    def _busy(self) -> Member | None:
        """Returns a random member that holds records, or None."""
        busy = [each for each in self.members.values() if each.is_in and self.held(each)]
        found: Member | None = self.pick(busy)
        return found

    def close_session(self) -> None:
        member = self.pick([each for each in self.members.values() if each.session != requests.OPEN])
        if member is not None:
            self._close_session(member)

    def _close_session(self, member: Member) -> None:
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        request = requests.acknowledge(member.group, member.name, requests.FINAL, topic_id, {})
        code = E(self.ask(request, requests.ACKNOWLEDGE_VERSION, member.name).error_code)
        self.check(code is E.NONE, f"{member} is told {code}")
        self._lost_session(member)

    def disconnect(self) -> None:
        member = self.pick(list(self.members.values()))
        self.stage.broker.disconnect(member.name)
        self._lost_session(member)

    def leave(self) -> None:
        member = self.pick([each for each in self.members.values() if each.is_in])
        if member is not None:
            self._leave(member)

    def stop_and_administer(self) -> None:
        """Makes all members of a group leave and then changes the group as an administrator."""
        pending = [group for (group, _), _, rec in self.records() if rec.state is State.PENDING]
        group = self.pick(pending or GROUPS)
        for member in self.members.values():
            if member.is_in and member.group == group:
                self._leave(member)
        self.rng.choice([self.alter_offsets, self.delete_offsets, self.delete_group])(group)

    def _leave(self, member: Member) -> None:
        if member.session != requests.OPEN:
            self._close_session(member)
        request = requests.heartbeat(member.group, member.name, requests.LEAVE, [])
        code = E(self.ask(request, requests.HEARTBEAT_VERSION, member.name).error_code)
        self.check(code in (E.NONE, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND), f"{member} is told {code}")
        member.epoch, member.is_first = requests.JOIN, True
        self.say(f"{member.name} leaves")

    # --- Transactions.

    def stage_some(self) -> None:
        member = self._busy()
        if member is None:
            return
        producer = self._ready(self.pick([each for each in self.producers.values() if not each.is_kept]))
        held = self.held(member)
        chosen = self.rng.sample(held, self.rng.randint(1, len(held)))
        kinds = {record: self.rng.choice([ACCEPT, ACCEPT, REJECT]) for record in chosen}
        for _ in range(self.rng.choice([1, 1, 1, 2])):  # A client repeats a request whose response was lost.
            self.under_way = partial(self._perhaps_staged, member, chosen, producer)
            codes = self._stage(member, kinds, producer.transactional_id, self._pair(producer))
            self.say(f"{member.name} acknowledges {kinds} in {producer.transactional_id} {producer.pair}: {codes}")
            if not self.level:
                self.check(codes == {E.UNSUPPORTED_VERSION}, f"{SHARE_TRANSACTIONS} is 0, and the answer {codes}")
                return
            self.check(codes == {E.NONE}, f"{member.name} is told {codes}")
            self._staged(member, chosen, producer)

    def _staged(self, member: Member, chosen: Sequence[Record], producer: Producer) -> None:
        self._begun(producer)
        for record in chosen:
            rec = self._rec(member.group, record)
            rec.state, rec.txn, rec.counts = State.PENDING, producer.txn, (rec.counts[1], rec.counts[1])
            rec.holder = member.name
            assert producer.txn is not None
            producer.txn.lock_over_ms = min(producer.txn.lock_over_ms, rec.over_ms[0])

    def _begun(self, producer: Producer) -> None:
        if producer.txn is None:
            self.serials += 1
            producer.txn = Txn(producer.transactional_id, self.serials, self._pair(producer), self.now_ms)

    def _stage(self, member: Member, kinds: Kinds, transactional_id: str, pair: tuple[int, int]) -> set[ErrorCode]:
        self._beat(member)
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        request = requests.stage(
            member.group, member.name, member.epoch, topic_id, kinds, transactional_id=transactional_id, pair=pair
        )
        answer = self.ask(request, requests.STAGE_VERSION, member.name)
        return {E(answer.error_code)} if answer.error_code else set(map(E, requests.codes_in(answer).values()))

    def _pair(self, producer: Producer) -> tuple[int, int]:
        assert producer.pair is not None
        return producer.pair

    def _ready(self, producer: Producer) -> Producer:
        if producer.pair is None:
            producer.pair = self._init(producer)
        return producer

    def _init(self, producer: Producer, *, keep: bool = False) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=TIMEOUTS_MS[producer.transactional_id],
            enable2_pc=producer.is_two_phase,
            keep_prepared_txn=keep,
        )
        for _ in range(40):
            answer = self.ask(request, 6, producer.transactional_id)
            code = E(answer.error_code)
            if code is E.NONE:
                return answer.producer_id, answer.producer_epoch
            self.check(code in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS), f"no producer id: {code}")
            self.stage.wait(50)
        raise AssertionError("no producer id")

    def commit(self) -> None:
        self._end(commit=True)

    def abort(self) -> None:
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        producer = self.pick([each for each in self.producers.values() if each.txn is not None])
        if producer is None:
            return
        pair = self._pair(producer)
        self.under_way = partial(self._perhaps_ended, producer, commit=commit)
        code, pair_after = self._end_as(producer.transactional_id, pair, commit=commit)
        self.say(f"{'commit' if commit else 'abort'} of {producer.txn}: {code.name}")
        self.check(code is E.NONE, f"the end of {producer.txn} is answered {code}")
        producer.pair = pair_after
        if not producer.is_kept:
            producer.ended.append((pair_after, commit))
        self._ended(producer, commit=commit)

    def _end_as(self, name: str, pair: tuple[int, int], *, commit: bool) -> tuple[ErrorCode, tuple[int, int]]:
        request = EndTxnRequest(transactional_id=name, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
        for _ in range(40):
            answer = self.ask(request, 5, name)
            code = E(answer.error_code)
            if code not in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS):
                break
            self.stage.wait(50)
        return code, (answer.producer_id, answer.producer_epoch)

    def race(self) -> None:
        """Sends an acknowledgement together with the end of its transaction. The acknowledgement must either share the
        transaction's outcome or be refused."""
        member = self._busy()
        producer = self.pick([each for each in self.producers.values() if each.txn is not None and not each.is_kept])
        if member is None or producer is None or not self.level:
            return
        self._beat(member)
        held, pair, commit = self.held(member), self._pair(producer), self.rng.random() < 0.5
        chosen = self.rng.sample(held, self.rng.randint(1, len(held)))
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        acknowledgement = requests.stage(
            member.group,
            member.name,
            member.epoch,
            topic_id,
            dict.fromkeys(chosen, ACCEPT),
            transactional_id=producer.transactional_id,
            pair=pair,
        )
        end = EndTxnRequest(
            transactional_id=producer.transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )
        both = [(acknowledgement, requests.STAGE_VERSION, member.name), (end, 5, producer.transactional_id)]
        is_reversed = self.rng.random() < 0.5
        answers = self.stage.ask_together(both[::-1] if is_reversed else both)
        staged, ended = answers[::-1] if is_reversed else answers
        codes = {E(staged.error_code), *map(E, requests.codes_in(staged).values())}
        self.say(f"{member.name} acknowledges {chosen} while {producer.txn} ends, commit {commit}: {codes}")
        if codes == {E.NONE}:
            self._staged(member, chosen, producer)
        else:
            self.check(not requests.codes_in(staged) or E.NONE not in codes, f"some of them were accepted: {codes}")
        self.check(not ended.error_code, f"the end of {producer.txn} is answered {E(ended.error_code)}")
        producer.pair = ended.producer_id, ended.producer_epoch
        producer.ended.append((producer.pair, commit))
        self._ended(producer, commit=commit)

    def fence(self) -> None:
        """Initialises the transactional id again, as an administrator or the application's next instance would. This
        aborts an open transaction."""
        producer = self.pick(list(self.producers.values()))
        before = producer.pair
        pair = self._init(producer)
        self.say(f"{producer.transactional_id} is taken over: {before} → {pair}")
        if producer.txn is not None:
            self._ended(producer, commit=False)
        if before is not None:
            producer.zombies.append(before)
        producer.pair = pair

    def recover(self) -> None:
        """Recovers the prepared transaction of a two-phase commit and checks that it accepts no more
        acknowledgements."""
        producer = self.producers["doubt"]
        if producer.txn is None:
            return
        before = self._pair(producer)
        producer.pair = self._init(producer, keep=True)
        producer.zombies.append(before)
        producer.is_kept = True
        self.say(f"{producer.txn} is kept for {producer.pair}")
        member = self._busy()
        if member is not None and self.level:
            record = self.rng.choice(self.held(member))
            for pair in (before, producer.pair):
                codes = self._stage(member, {record: ACCEPT}, producer.transactional_id, pair)
                self.say(f"{pair} acknowledges {record}: {codes}")
                self.check(E.NONE not in codes, f"the kept transaction {producer.txn} has taken in {record}")

    def zombie(self) -> None:
        """Sends a request from a producer that was replaced or whose transaction was aborted, and checks that it is
        refused."""
        producer = self.pick([each for each in self.producers.values() if each.zombies])
        if producer is None:
            return
        pair = self.rng.choice(producer.zombies)
        if self.rng.random() < 0.5:
            code, _ = self._end_as(producer.transactional_id, pair, commit=True)
            self.say(f"a zombie of {producer.transactional_id}, {pair}, commits: {code.name}")
            self.check(code in FENCED, f"the commit of a zombie is answered {code}")
            return
        member = self._busy()
        if member is not None and self.level:
            record = self.rng.choice(self.held(member))
            codes = self._stage(member, {record: ACCEPT}, producer.transactional_id, pair)
            self.say(f"a zombie of {producer.transactional_id}, {pair}, acknowledges {record}: {codes}")
            self.check(codes <= FENCED, f"the acknowledgement of a zombie is answered {codes}")

    def touch_pending(self) -> None:
        """Checks that a member cannot acknowledge a pending record, either outside its transaction or in another
        transaction."""
        found = [(place, offset, rec) for place, offset, rec in self.records() if rec.state is State.PENDING]
        if not found:
            return
        (group, index), offset, rec = self.rng.choice(found)
        record = (index, offset)
        member = self.pick([each for each in self.members.values() if each.group == group and each.is_in])
        if member is None:
            return
        others = [
            each
            for each in self.producers.values()
            if rec.txn is None or rec.txn.transactional_id != each.transactional_id
        ]
        if self.rng.random() < 0.5 and member.session != requests.OPEN:
            kind = self.rng.choice([ACCEPT, RELEASE, REJECT])
            codes = set(self._acknowledge(member, {record: kind}).values())
            self.say(f"{member.name} acknowledges {record} by {kind}, which {rec.txn} holds: {codes}")
        elif self.level:
            other = self._ready(self.pick(others))
            codes = self._stage(member, {record: ACCEPT}, other.transactional_id, self._pair(other))
            self.say(f"{member.name} acknowledges {record} in {other.transactional_id}, which {rec.txn} holds: {codes}")
            # The request may have begun the transaction before it was refused.
            if self._entry(other).state is TxnState.ONGOING:
                self._begun(other)
        else:
            return
        self.check(E.NONE not in codes, f"{record} is acknowledged, and {rec.txn} holds it")

    def repeat_marker(self) -> None:
        """Repeats a marker of a recently ended transaction and checks that it is either accepted or refused as
        outdated."""
        producer = self.pick([each for each in self.producers.values() if each.ended])
        if producer is None:
            return
        (producer_id, producer_epoch), commit = self.rng.choice(producer.ended[-3:])
        count = self.stage.broker.share_coordinator.partition_count
        topic = WritableTxnMarkerTopic(name=SHARE_GROUP_STATE, partition_indexes=list(range(count)))
        version = self.rng.choice([1, 2])
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=commit,
            topics=[topic],
            coordinator_epoch=self._coordinator_epoch(producer),
            transaction_version=2 if version == 2 else 0,
        )
        answer = self.ask(WriteTxnMarkersRequest(markers=[marker]), version)
        codes = {E(each.error_code) for topic in answer.markers[0].topics for each in topic.partitions}
        self.say(f"the marker {producer_id} {producer_epoch} {commit} comes again by version {version}: {codes}")
        self.check(codes <= {E.NONE, E.INVALID_PRODUCER_EPOCH}, f"a marker that comes again is answered {codes}")

    def _coordinator_epoch(self, producer: Producer) -> int:
        broker = self.stage.broker
        index = broker.transactions.partition_for(producer.transactional_id)
        return broker.metadata.image.topics[TRANSACTION_STATE].partitions[index].leader_epoch

    # --- Administrators.

    def _has_members(self, group: str) -> bool:
        return any(each.is_in for each in self.members.values() if each.group == group)

    def alter_offsets(self, group: str | None = None) -> None:
        group, index = group or self.pick(GROUPS), self.rng.randrange(PARTITIONS)
        log = self.stage.broker.partition(TOPIC, index).log
        offset = self.rng.randint(0, log.log_end_offset)
        partition = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[partition])
        answer = self.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[topic]), 0)
        code = E(answer.error_code)
        self.say(f"{group} {index} is put to {offset}: {code.name}")
        if self._has_members(group):
            self.check(code is E.NON_EMPTY_GROUP, f"a group with members is altered: {code}")
            return
        codes = {E(each.error_code) for topic in answer.responses for each in topic.partitions}
        self.check(code is E.NONE and codes == {E.NONE}, f"offsets cannot be altered: {code} {codes}")
        self.exists[group] = True
        self._begun_anew(group, index, offset)

    def delete_offsets(self, group: str | None = None) -> None:
        group = group or self.pick(GROUPS)
        topic = DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)
        answer = self.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=[topic]), 0)
        code = E(answer.error_code)
        self.say(f"the offsets of {group} are deleted: {code.name}")
        if not self.exists[group]:
            self.check(code is E.GROUP_ID_NOT_FOUND, f"{group} is not there, and the answer {code}")
        elif self._has_members(group):
            self.check(code is E.NON_EMPTY_GROUP, f"the offsets of a group with members are deleted: {code}")
        else:
            codes = {E(each.error_code) for each in answer.responses}
            self.check(code is E.NONE and codes <= {E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION}, f"{code} {codes}")
            for index in range(PARTITIONS):
                self._begun_anew(group, index)

    def delete_group(self, group: str | None = None) -> None:
        group = group or self.pick(GROUPS)
        answer = self.ask(DeleteGroupsRequest(groups_names=[group]), 2)
        code = E(answer.results[0].error_code)
        self.say(f"{group} is deleted: {code.name}")
        if not self.exists[group]:
            self.check(code is E.GROUP_ID_NOT_FOUND, f"{group} is not there, and the answer {code}")
        elif self._has_members(group):
            self.check(code is E.NON_EMPTY_GROUP, f"a group with members is deleted: {code}")
        else:
            self.check(code is E.NONE, f"{group} cannot be deleted: {code}")
            self.exists[group] = False
            for index in range(PARTITIONS):
                self._begun_anew(group, index)

    def recreate_topic(self) -> None:
        self._delete_topic()
        self._create_topic()

    def _delete_topic(self) -> None:
        answer = self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=10_000), 6)
        self.check(not answer.responses[0].error_code, f"the topic is not deleted: {E(answer.responses[0].error_code)}")
        for place in self.places:
            self.places[place] = {}

    def _create_topic(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        self.check(not answer.topics[0].error_code, f"the topic is not created: {E(answer.topics[0].error_code)}")
        self.stage.topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        self.stage.wait(100)

    def delete_records(self) -> None:
        index = self.rng.randrange(PARTITIONS)
        log = self.stage.broker.partition(TOPIC, index).log
        before = self.rng.randint(log.log_start_offset, log.log_end_offset)
        partition = DeleteRecordsPartition(partition_index=index, offset=before)
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
        answer = self.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
        code = E(answer.topics[0].partitions[0].error_code)
        self.check(code is E.NONE, f"records are not deleted: {code}")
        self.say(f"records of {index} before {before} are deleted")
        # Wait until the deletion has reached the checkpoint. Without this, the records would reappear after a crash, as
        # they do in Kafka.
        self.stage.wait(1_100)
        for (_, of), records in self.places.items():
            for offset in [offset for offset in records if of == index and offset < before]:
                del records[offset]

    def produce(self) -> None:
        index, count, now_ms = self.rng.randrange(PARTITIONS), self.rng.randint(1, 5), self.now_ms
        partition = self.stage.broker.partition(TOPIC, index)
        first = partition.log.log_end_offset
        records = [NewRecord(None, b"task", now_ms) for _ in range(count)]
        partition.append_now(build_batch(records), origin=Origin.CLIENT, now_ms=now_ms)
        self.stage.wait(20)
        for group in GROUPS:
            self.places[group, index].update({offset: Rec() for offset in range(first, first + count)})

    def configure(self) -> None:
        group = self.pick(GROUPS)
        name, value = self.rng.choice(
            [
                ("share.record.lock.duration.ms", str(LOCK_MS)),
                ("share.isolation.level", "read_committed"),
                ("share.isolation.level", "read_uncommitted"),
                ("share.heartbeat.interval.ms", "5000"),
                ("share.partition.max.record.locks", self.rng.choice(["1000", "2000"])),
            ]
        )
        self._configure(group, name, value)
        self.say(f"{name} of {group} is {value}")

    def _configure(self, group: str, name: str, value: str) -> None:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP.value, resource_name=group, configs=[config]
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        code = E(answer.responses[0].error_code)
        assert code is E.NONE, f"{name}: {code} {answer.responses[0].error_message}"

    def change_version(self) -> None:
        """Changes the level of odradek.share.transactions. Level 0 is possible only while no acknowledgement is
        pending."""
        level = 1 - self.level
        update = FeatureUpdateKey(feature=SHARE_TRANSACTIONS, max_version_level=level, upgrade_type=1 if level else 2)
        is_pending = any(rec.state is State.PENDING for _, _, rec in self.records())
        # This number includes records below the log start offset.
        counted = self.stage.broker.share_coordinator.pending_count()
        code = E(self.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code)
        self.say(f"{SHARE_TRANSACTIONS} {level}: {code.name}")
        if level or not counted:
            self.check(code is E.NONE, f"{SHARE_TRANSACTIONS} cannot be set to {level}: {code}")
        else:
            self.check(is_pending is False or code is E.FEATURE_UPDATE_FAILED, f"while {counted} wait: {code}")
        if code is E.NONE:
            self.level = level

    def sleep(self) -> None:
        self.wait(self.rng.choice([100, 3_000, 12_000, LOCK_MS + 1_000]))

    def restart(self) -> None:
        """Kills the broker or simulates a power failure, at random, and restarts it. No acknowledged change may be
        lost, because the broker responds only after an fdatasync."""
        stage = self.stage
        stage.broker.kill()
        if self.rng.random() < 0.5:
            disk = stage.disk.after_kill()
        else:
            disk = self.rng.choice(list(stage.disk.after_power_failure(self.rng.randrange(1 << 30), 1))).disk
        self.stage = ShareStage(disk, self.now_ms, is_two_phase=True, settings=SETTINGS)
        while not self.stage.broker.share_coordinator.shards.is_loaded:
            self.stage.wait(50)
        for member in self.members.values():
            self._lost_session(member)

    def die(self) -> None:
        """Kills the broker at a random disk call during a request, restarts it, and finds out the request's outcome."""
        self.under_way = None
        self.stage.die_after(self.rng.randint(1, 8))
        try:
            self.rng.choice([self.stage_some, self.stage_some, self.commit, self.abort])()
        except ProcessCrashed:
            self.say("the broker died")
        else:
            self.under_way = None
        self.restart()
        if self.under_way is not None:
            self.under_way()

    def _perhaps_staged(self, member: Member, chosen: Sequence[Record], producer: Producer) -> None:
        pair, topic_id = self._pair(producer), self.stage.broker.metadata.image.topics[TOPIC].topic_id
        entry = self._entry(producer)
        if entry.state is TxnState.ONGOING and entry.producer_epoch == pair[1]:
            self._begun(producer)
        found = []
        for record in chosen:
            key = SharePartitionKey(member.group, topic_id, record[0])
            stored = self.stored(key)
            if any(
                each.first_offset <= record[1] <= each.last_offset
                for each in (() if stored is None else stored.pending)
            ):
                found.append(record)
        self.say(f"of {chosen} {found} are pending, and the transaction is {entry.state}")
        if found:
            self.check(producer.txn is not None, f"{found} are pending, and no transaction knows of them: {entry}")
            self._staged(member, found, producer)
            for record in found:
                self._rec(member.group, record).session = -1

    def _perhaps_ended(self, producer: Producer, *, commit: bool) -> None:
        assert producer.txn is not None
        for _ in range(40):
            if not self._entry(producer).is_prepared:
                break
            self.stage.wait(100)
        entry = self._entry(producer)
        self.say(f"{producer.txn} is {entry.state}, after commit {commit} was asked for")
        if entry.state is TxnState.ONGOING and entry.producer_epoch == producer.txn.pair[1]:
            return
        self.check(
            entry.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT),
            f"{producer.txn} is {entry.state}, after commit {commit} was asked for",
        )
        self._ended(producer, commit=commit)
        producer.pair = None

    # --- The end of the run.

    def drain(self) -> None:
        """Aborts every open transaction and checks that one more member of each group receives exactly the remaining
        records."""
        self.trace.append(f"{self.now_ms}: drain")
        for producer in self.producers.values():
            if producer.txn is not None:
                code, producer.pair = self._end_as(producer.transactional_id, self._pair(producer), commit=False)
                self.check(code is E.NONE, f"{producer.txn} cannot be aborted: {code}")
                self._ended(producer, commit=False)
        for member in list(self.members.values()):
            if member.is_in:
                self._leave(member)
        self.settle()
        self.compare()
        for group in GROUPS:
            last = self.members[f"last of {group}"] = Member(group, f"last of {group}")
            while self.fetch(last, 100):
                kinds = dict.fromkeys(self.held(last), ACCEPT)
                codes = self._acknowledge(last, kinds)
                self.check(set(codes.values()) == {E.NONE}, f"the last member is told {codes}")
                for record in kinds:
                    self._rec(group, record).state = State.DONE
                self.settle()
                self.compare()
            left = [
                (place, offset)
                for place, offset, rec in self.records()
                if place[0] == group and rec.state is State.AVAILABLE
            ]
            self.check(not left, f"{left} never came")
