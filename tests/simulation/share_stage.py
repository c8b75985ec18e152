"""A stage with a share group: members that fetch and acknowledge, and a producer that acknowledges in transactions.

`ShareStory` contains everything that its clients have learned from all brokers. The clients behave like real ones: they
repeat unanswered requests, and open a new share session if the broker has forgotten theirs. Each delivery is checked
immediately: a record has only one holder, a finished record is not delivered again, and no delivery count decreases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS, SHARE_TRANSACTIONS_LEVEL
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from odradek.storage.log import Origin
from tests.simulation import share_requests as requests
from tests.simulation.share_requests import ACCEPT, REJECT, RELEASE, RENEW, AcquiredRecord, Kinds, Record
from tests.simulation.stage import ID, P0, Stage
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk

E = ErrorCode
QUEUE, TOPIC = "workers", "tasks"
INPUTS = 8
LIMIT, LOCK_MS, SESSION_MS = 10, 2_000, 60_000
SETTINGS = {
    "group_share_delivery_count_limit": str(LIMIT),
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_record_lock_duration_ms": str(LOCK_MS),
    "group_share_session_timeout_ms": str(SESSION_MS),
    "group_share_assignment_interval_ms": "0",
    "group_share_initialize_retry_interval_ms": "500",
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_snapshot_update_records_per_snapshot": "2",
    "share_coordinator_cold_partition_snapshot_interval_ms": "900",
    "share_coordinator_state_topic_prune_interval_ms": "700",
    # These are the broker's defaults. The shorter intervals of other simulations would only keep the clock and the disk
    # busy.
    "log_cleaner_backoff_ms": "15000",
    "log_flush_offset_checkpoint_interval_ms": "60000",
}
NO_SESSION = frozenset({E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH})
REJOIN = frozenset({E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.GROUP_ID_NOT_FOUND})


class ShareStage(Stage):
    def __init__(
        self,
        disk: FakeDisk | None = None,
        now_ms: int = NOW_MS,
        *,
        is_durable: bool = True,
        is_two_phase: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            disk, now_ms, is_durable=is_durable, is_two_phase=is_two_phase, settings=SETTINGS | dict(settings or {})
        )
        self.topic_id = self.broker.metadata.image.topics[TOPIC].topic_id
        if disk is None:
            self._produce_inputs()

    def _make_topics(self) -> None:
        super()._make_topics()
        state = internal_topic(SHARE_GROUP_STATE, self.config)
        assert state is not None
        self.broker.auto_creation.create([NewTopic(TOPIC, 1, 1), state])
        level = FeatureLevelRecord(name=SHARE_TRANSACTIONS, feature_level=SHARE_TRANSACTIONS_LEVEL)
        reset = ConfigRecord(
            resource_type=ConfigResourceType.GROUP.value,
            resource_name=QUEUE,
            name="share.auto.offset.reset",
            value="earliest",
        )
        self.broker.metadata.commit([level, reset])

    def _produce_inputs(self) -> None:
        now_ms = self.time.now_ms()
        for count in (3, INPUTS - 3):
            records = [NewRecord(None, b"task", now_ms) for _ in range(count)]
            self.broker.partition(TOPIC, 0).append_now(build_batch(records), origin=Origin.CLIENT, now_ms=now_ms)
        self.wait(100)


def prepared_disk(*, is_durable: bool) -> FakeDisk:
    """Returns the disk of a stage whose broker was killed after it had created the topics and inputs."""
    stage = ShareStage(is_durable=is_durable)
    stage.broker.kill()
    return stage.disk.after_kill()


@dataclass(slots=True)
class Member:
    name: str
    epoch: int = requests.JOIN
    assigned: set[int] = field(default_factory=set)
    # Remains set until a response arrives. The broker repeats a lost assignment only in its response to a full
    # heartbeat.
    sends_full_heartbeat: bool = True
    session: int = requests.OPEN  # session epoch of its next request
    held: dict[Record, int] = field(default_factory=dict)  # acquired records with their delivery counts


@dataclass(slots=True)
class ClientKnowledge:
    """Everything that the clients have learned, which a restart of the broker does not change.

    A rejection or an acceptance is confirmed by its own response or, in a transaction, by the response to the commit.

    finished          records whose acceptance or rejection is confirmed
    doubtful          records whose acceptance or rejection was requested, and may have taken effect
    least_count       minimum delivery count of a record's next delivery, if its release is confirmed
    locks             by record: the member that certainly holds it, and the end of the lock
    ending            whether the unanswered EndTxn commits; None if there is none
    given_up          records whose rejection is confirmed
    perhaps_given_up  records whose rejection was requested
    used              records whose acceptance is confirmed
    """

    members: dict[str, Member] = field(default_factory=dict)
    finished: set[Record] = field(default_factory=set)
    doubtful: set[Record] = field(default_factory=set)
    least_count: dict[Record, int] = field(default_factory=dict)
    deliveries: Counter[Record] = field(default_factory=Counter)
    locks: dict[Record, tuple[str, int]] = field(default_factory=dict)
    staged: set[Record] = field(default_factory=set)
    ending: bool | None = None
    restarts: int = 0
    given_up: set[Record] = field(default_factory=set)
    perhaps_given_up: set[Record] = field(default_factory=set)
    used: set[Record] = field(default_factory=set)
    staged_rejections: set[Record] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Moment:
    """A story's state, apart from its broker."""

    knowledge: ClientKnowledge
    pair: tuple[int, int]
    now_ms: int
    is_durable: bool
    is_two_phase: bool

    def continue_story(self, disk: FakeDisk, later_ms: int = 0) -> ShareStory:
        """Continues the story with another broker on this disk. The same moment can be continued several times."""
        known = deepcopy(self.knowledge)
        known.restarts += 1
        known.locks.clear()
        stage = ShareStage(disk, self.now_ms + later_ms, is_durable=self.is_durable, is_two_phase=self.is_two_phase)
        stage.pair = self.pair
        return ShareStory(stage, known)


class ShareStory:
    def __init__(self, stage: ShareStage, known: ClientKnowledge | None = None, group: str = QUEUE) -> None:
        self.stage = stage
        self.group = group
        self.knowledge = known or ClientKnowledge()
        # Tests in which staged records must not be delivered replace this function.
        self.may_be_delivered: Callable[[Record], bool] = lambda record: True

    def moment(self) -> Moment:
        stage = self.stage
        return Moment(deepcopy(self.knowledge), stage.pair, stage.time.now_ms(), stage.is_durable, stage.is_two_phase)

    # --- Membership.

    def member(self, name: str) -> Member:
        return self.knowledge.members.setdefault(name, Member(name))

    def join(self, name: str) -> Member:
        """Joins and sends heartbeats until the partition is assigned, because its state must be initialised first."""
        member = self.member(name)
        for _ in range(20):
            self.beat(member)
            if member.assigned:
                return member
            self.stage.wait(100)
        raise AssertionError(f"{name} is given no partition")

    def beat(self, member: Member) -> None:
        request = requests.heartbeat(
            self.group, member.name, member.epoch, [TOPIC] if member.sends_full_heartbeat else None
        )
        member.sends_full_heartbeat = True
        answer = self.stage.ask(request, requests.HEARTBEAT_VERSION, member.name)
        code = E(answer.error_code)
        if code in REJOIN and self.may_lose_members:
            member.epoch = requests.JOIN
            return
        assert code is E.NONE, f"{member.name} at {member.epoch}: {code.name}"
        assert answer.member_epoch >= member.epoch, "a member epoch went back"
        member.epoch, member.sends_full_heartbeat = answer.member_epoch, False
        assigned = requests.assigned_in(answer)
        member.assigned = member.assigned if assigned is None else assigned

    @property
    def may_lose_members(self) -> bool:
        """Returns whether a power failure may lose members, because responses do not wait for the disk."""
        return not self.stage.is_durable

    def leave(self, name: str) -> None:
        """Closes the session and then leaves, like Java's consumer."""
        member = self.member(name)
        self.close_session(name)
        request = requests.heartbeat(self.group, name, requests.LEAVE, [])
        code = E(self.stage.ask(request, requests.HEARTBEAT_VERSION, name).error_code)
        assert code in (E.NONE, *REJOIN), code
        member.epoch, member.assigned, member.sends_full_heartbeat = requests.JOIN, set(), True

    # --- Sessions.

    def close_session(self, name: str) -> None:
        member = self.member(name)
        request = requests.acknowledge(self.group, name, requests.FINAL, self.stage.topic_id, {})
        code = E(self.stage.ask(request, requests.ACKNOWLEDGE_VERSION, name).error_code)
        assert code in (E.NONE, *NO_SESSION), code
        self._lose_session(member)

    def disconnect(self, name: str) -> None:
        self.stage.broker.disconnect(name)
        self._lose_session(self.member(name))

    def _lose_session(self, member: Member) -> None:
        member.session = requests.OPEN
        member.held.clear()
        for record in [record for record, (holder, _) in self.knowledge.locks.items() if holder == member.name]:
            del self.knowledge.locks[record]

    def fetch(self, name: str, max_records: int, *, mode: int = 0, tries: int = 12) -> list[AcquiredRecord]:
        """Fetches until there are records, but at most `tries` times. The first fetch only starts loading the share
        partition."""
        member = self.join(name)
        for _ in range(tries):
            sent_ms = self.stage.time.now_ms()
            request = requests.fetch(
                self.group,
                name,
                member.session,
                self.stage.topic_id,
                member.assigned,
                max_records=max_records,
                mode=mode,
            )
            answer = self.stage.ask(request, requests.FETCH_VERSION, name)
            code = E(answer.error_code)
            if code in NO_SESSION:
                self._lose_session(member)
                continue
            assert code is E.NONE, code
            member.session += 1
            errors = {E(part.error_code).name for each in answer.responses for part in each.partitions}
            assert errors <= {"NONE"}, errors
            acquired = requests.acquired_in(answer)
            for each in acquired:
                self._delivered(member, each, sent_ms)
            if acquired:
                return acquired
            self.stage.wait(50)
        return []

    def _delivered(self, member: Member, acquired: AcquiredRecord, sent_ms: int) -> None:
        known, record, count = self.knowledge, acquired.record, acquired.delivery_count
        what = f"{record} is delivered to {member.name} for the {count}. time"
        assert record not in known.finished, f"{what} after it was finished"
        assert self.may_be_delivered(record), f"{what}, while its acknowledgement is staged"
        holder, until_ms = known.locks.get(record, (member.name, 0))
        assert holder == member.name or until_ms <= self.stage.time.now_ms(), f"{what}, while {holder} holds it"
        assert known.least_count.get(record, 1) <= count <= LIMIT, f"{what}, not the {known.least_count.get(record)}."
        known.deliveries[record] += 1
        assert known.deliveries[record] <= LIMIT + known.restarts, f"{record} is delivered too often"
        known.locks[record] = (member.name, sent_ms + LOCK_MS)
        member.held[record] = count

    # --- Acknowledgements.

    def acknowledge(self, name: str, count: int, kind: int) -> None:
        """Acknowledges `count` held records. A member that holds none fetches first."""
        member = self.member(name)
        for _ in range(3):
            kinds: Kinds = dict.fromkeys(sorted(member.held)[:count], kind)
            if not kinds:
                if not self.fetch(name, count):
                    return
                continue
            if kind in (ACCEPT, REJECT):
                self.knowledge.doubtful |= set(kinds)
            if kind == REJECT:
                self.knowledge.perhaps_given_up |= set(kinds)
            request = requests.acknowledge(self.group, name, member.session, self.stage.topic_id, kinds)
            answer = self.stage.ask(request, requests.ACKNOWLEDGE_VERSION, name)
            if E(answer.error_code) in NO_SESSION:
                self._lose_session(member)
                continue
            assert not answer.error_code, E(answer.error_code)
            member.session += 1
            codes = set(requests.codes_in(answer).values())
            assert codes == {E.NONE.value}, codes
            self._acknowledged(member, kinds, kind)
            return

    def _acknowledged(self, member: Member, kinds: Kinds, kind: int) -> None:
        for record in kinds:
            if kind == RENEW:
                continue
            self.knowledge.locks.pop(record, None)
            count = member.held.pop(record)
            if kind == RELEASE:
                self.knowledge.least_count[record] = count + 1
            else:
                self.knowledge.finished.add(record)
                (self.knowledge.given_up if kind == REJECT else self.knowledge.used).add(record)

    # --- Acknowledgements in a transaction.

    def begin(self) -> None:
        """Initialises the producer again, to abort an open transaction or complete a decided one."""
        for _ in range(40):
            code = self.stage.init6(keep=False)[0] if self.stage.is_two_phase else self.stage.init()
            if code is E.NONE:
                self.knowledge.ending, self.knowledge.staged, self.knowledge.staged_rejections = None, set(), set()
                self._check_nothing_is_staged()
                return
            assert code in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS), code
            self.stage.wait(50)
        raise AssertionError(f"no producer id: {code.name}")

    def _check_nothing_is_staged(self) -> None:
        """Checks that nothing is staged. This is true because the only producer has ended its transactions."""
        coordinator = self.stage.broker.share_coordinator
        while not coordinator.shards.is_loaded:
            self.stage.wait(50)
        assert not coordinator.pending_count(), "acknowledgements are staged, and no transaction knows of them"

    def stage_some(self, name: str, count: int, kind: int = ACCEPT, *, twice: bool = False) -> bool:
        """Writes outputs for this number of inputs and stages their acknowledgements. Returns False if the transaction
        must be aborted.

        twice  whether the request is sent again, as after a lost response
        """
        member = self.member(name)
        chosen = sorted(member.held)[:count] or [each.record for each in self.fetch(name, count)][:count]
        if not chosen:
            return True
        for partition, offset in chosen:
            if self.stage.produce(f"{partition}.{offset}", P0) is not E.NONE:
                return False
        request = requests.stage(
            self.group,
            name,
            member.epoch,
            self.stage.topic_id,
            dict.fromkeys(chosen, kind),
            transactional_id=ID,
            pair=self.stage.pair,
        )
        for _ in range(1 + twice):
            answer = self.stage.ask(request, requests.STAGE_VERSION)
            codes = {answer.error_code, *requests.codes_in(answer).values()}
            if codes != {0}:
                self._lose_session(member)
                return False
        for record in chosen:
            del member.held[record]
        self.knowledge.staged |= set(chosen)
        if kind == REJECT:
            self.knowledge.staged_rejections |= set(chosen)
        return True

    def end(self, *, commit: bool) -> bool:
        """Ends the transaction. Returns whether the broker has confirmed this outcome."""
        self.knowledge.ending = commit
        if commit:
            self.knowledge.doubtful |= self.knowledge.staged
            self.knowledge.perhaps_given_up |= self.knowledge.staged_rejections
        code = self.stage.end(committed=commit)
        for _ in range(40):
            if code not in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS):
                break
            self.stage.wait(50)
            code = self.stage.end(committed=commit)
        self.knowledge.ending = None
        staged, self.knowledge.staged = self.knowledge.staged, set()
        rejections, self.knowledge.staged_rejections = self.knowledge.staged_rejections, set()
        if code is E.NONE and commit:
            self.knowledge.finished |= staged
            self.knowledge.given_up |= rejections
            self.knowledge.used |= staged - rejections
        return code is E.NONE

    # --- The end of the story.

    def drain(self, *, in_transactions: bool) -> None:
        """Drains the share group with one more member and no faults, and checks the final state."""
        if in_transactions:
            self.begin()
        for name in [name for name in self.knowledge.members if name != "last"]:
            self.disconnect(name)
        self.stage.wait(2 * LOCK_MS)
        last = self.member("last")
        while last.held or self.fetch("last", 3):
            if in_transactions:
                assert self.stage_some("last", 3), "the last worker cannot acknowledge"
                assert self.end(commit=True), "the last worker cannot commit"
            else:
                self.acknowledge("last", 3, ACCEPT)
        self.stage.wait(2 * LOCK_MS)
        assert self.fetch("last", 3) == []
        if in_transactions:
            self._check_outputs()
        else:
            self._check_finished()

    def _check_outputs(self) -> None:
        found = Counter(self.stage.readable())
        expected = {f"0.{offset}" for offset in range(INPUTS)}
        twice = {each for each, count in found.items() if count > 1}
        assert not twice, f"{twice} were processed twice"
        assert found.keys() == expected, f"{expected - found.keys()} were never processed"

    def _check_finished(self) -> None:
        records = {(0, offset) for offset in range(INPUTS)}
        lost = records - self.knowledge.finished - self.knowledge.doubtful
        assert not lost, f"lost: {lost}"
