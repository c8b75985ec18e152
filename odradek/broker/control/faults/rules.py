"""Fault rules, with the requests and steps that they match, the points at which they act, and their actions. A rule can
hold requests, transaction markers and steps of the broker until the test releases them.

`Rules` chooses the action for a request or step. The action is applied in `faulty_requests.py` to requests and
connections, in `faulty_markers.py` to the end of transactions, and in `steps.py` to other steps of the broker.
`rule_json.py` parses and formats rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.broker.api.error_replies import answers_partitions
from odradek.broker.control.faults.edits import Edit
from odradek.broker.control.problems import Problem, nearest
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.struct import Struct

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.waiting import Deferred


class Point(Enum):
    ACCEPTED = "accepted"  # a connection has been accepted, but has not sent a request yet
    RECEIVED = "received"  # a request has been received, but not handled yet
    APPLIED = "applied"  # a request has been handled, but not answered yet
    REPLYING = "replying"  # the final response, including changes made by other rules, is about to be sent
    VERIFIED = "verified"  # the coordinator has verified a transaction, but its records have not been written yet
    PREPARED = "prepared"  # the decision about a transaction is in the log, but no marker has been sent yet
    MARKER = "marker"  # before a transaction marker is written to a partition
    COMPLETED = "completed"  # the last marker has been written, but the coordinator has not been notified yet
    SHARE_STATE = "share_state"  # before a share partition's state is stored
    LOADING = "loading"  # before a coordinator reads partitions of its topic


ANSWERED_AT = frozenset({Point.RECEIVED, Point.APPLIED})
REPLY_POINTS = ANSWERED_AT | {Point.REPLYING}
BY_CONNECTION = ("client_id", "software", "principal", "connection", "listener", "node")
BY_NAME = ("transactional_id", "group", "producer_id")
MAX_LISTED_ELEMENTS = 20  # maximum number of waiters listed per hold, and of partitions or topics listed per waiter
MANY = 500  # `Holds.are_many` is true above this number of waiters; the default of Kafka's queued.max.requests
WaiterFacts: TypeAlias = Mapping[str, object]  # facts that describe a waiter
# Resumes a waiter. Returns a Deferred that resolves when the effect is complete, or None if it is already complete.
Resume: TypeAlias = "Callable[[], Deferred[None] | None]"


@dataclass(frozen=True, slots=True)
class FieldComparison:
    attribute: str
    compare: Callable[[Any, Any], bool]
    value: object

    def matches(self, request: Struct) -> bool:
        try:
            return self.compare(getattr(request, self.attribute), self.value)
        except TypeError:  # null cannot be compared with < or >
            return False


@dataclass(frozen=True, slots=True)
class Action:
    error: ErrorCode | None = None
    partitions: frozenset[int] | None = None  # partitions that get the error; None to refuse the whole request
    edits: tuple[Edit, ...] = ()
    delay_ms: int = 0
    hold: str | None = None
    slow_bytes_per_s: int | None = None  # rate at which the response is sent, in bytes per second
    drops: bool = False
    disconnects: bool = False
    resets: bool = False  # True to disconnect with a TCP RST, False to disconnect with a FIN

    @property
    def only_observes(self) -> bool:
        return self == OBSERVE


OBSERVE = Action()


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The facts about a connection, a request, a marker or a broker step that rules match against.

    api               the API of the request; None for connections, markers and steps
    connection_facts  facts about the connection, such as client_id, principal and node
    field_values      values of the fields transactional_id, group and producer_id
    places            pairs of topic and partition; the partition is None if the pair stands for the entire topic
    body_at           position of the body in the request's frame, after the header
    """

    api: ApiKey | None
    version: int = 0
    request: Struct | None = None
    connection_facts: Mapping[str, object] = field(default_factory=dict)
    field_values: Mapping[str, Collection[object]] = field(default_factory=dict)
    places: Collection[tuple[str, int | None]] = ()
    body_at: int = 0


@dataclass(slots=True)
class Rule:
    name: str
    match: Mapping[str, object]
    at: Point
    do: Action
    source: Mapping[str, object]
    apis: frozenset[ApiKey] | None = None
    versions: tuple[int, int] | None = None
    when: tuple[FieldComparison, ...] = ()
    after: int = 0
    every: int = 1
    times: int | None = None
    probability: float = 1.0
    random: Random = field(default_factory=lambda: Random(0))
    matched: int = 0
    hits: int = 0
    may_be_unused: bool = False
    failed_edits: int = 0  # number of responses that the edits could not be applied to
    edit_failure: str | None = None  # reason the edits could not be applied to the last of these responses

    def may_match(self, api: ApiKey, version: int) -> bool:
        """Returns whether the rule can match a request of this API and version. Does not need the decoded request."""
        if self.at not in REPLY_POINTS or (self.times is not None and self.hits >= self.times):
            return False
        if self.apis is not None and api not in self.apis:
            return False
        return self.versions is None or self.versions[0] <= version <= self.versions[1]

    @property
    def acts_always(self) -> bool:
        """True if the rule acts on every match from now on, because neither a count nor a probability limits it."""
        is_counted = self.times is not None or self.every > 1 or self.matched < self.after
        return not is_counted and self.probability >= 1

    def acts_on(self, occurrence: Occurrence) -> bool:
        """Returns whether `match` and `times` allow the rule to act on this request or step. Does not count a match or
        a hit."""
        return (self.times is None or self.hits < self.times) and self._matches(occurrence)

    def count_match(self, occurrence: Occurrence) -> bool:
        """Decides whether the rule acts on this request or step, and counts matches and hits."""
        if not self.acts_on(occurrence):
            return False
        self.matched += 1
        if self.matched <= self.after or (self.matched - self.after - 1) % self.every:
            return False
        if self.probability < 1 and self.random.random() >= self.probability:
            return False
        self.hits += 1
        return True

    def _matches(self, occurrence: Occurrence) -> bool:
        match = self.match
        if occurrence.api is not None and not self.may_match(occurrence.api, occurrence.version):
            return False
        if any(name in match and occurrence.connection_facts.get(name) != match[name] for name in BY_CONNECTION):
            return False
        if any(name in match and match[name] not in occurrence.field_values.get(name, ()) for name in BY_NAME):
            return False
        numbers = self.do.partitions
        if numbers is not None and (
            occurrence.api is None or not answers_partitions(occurrence.api, occurrence.version)
        ):
            return False
        if numbers is not None and not any(
            each in numbers for topic, each in occurrence.places if self._is_place(topic, each)
        ):
            return False
        if ("topic" in match or "partition" in match) and not any(self._is_place(*each) for each in occurrence.places):
            return False
        return not self.when or (
            occurrence.request is not None and all(each.matches(occurrence.request) for each in self.when)
        )

    def _is_place(self, topic: str, partition: int | None) -> bool:
        return self.match.get("topic", topic) == topic and self.match.get("partition", partition) == partition

    def record_failed_edit(self, why: str) -> None:
        """Subtracts a counted hit, because the edits could not be applied to the response."""
        self.hits -= 1
        self.failed_edits += 1
        self.edit_failure = why


@dataclass(frozen=True, slots=True)
class _Waiter:
    resume: Resume
    facts: WaiterFacts
    is_repeated_at_start: bool


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The result of releasing a hold: the number of waiters, and Deferreds that resolve when the effects of the release
    are complete."""

    count: int
    effects: Sequence[Deferred[None]]


class Holds:
    """The waiting requests, markers and steps, by hold name."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, _Waiter]] = {}

    def add_waiter(
        self,
        name: str,
        who: object,
        resume: Resume,
        point: Point,
        occurrence: Occurrence,
        *,
        is_repeated_at_start: bool = False,
    ) -> None:
        """Registers a request, marker or step waiting at this point. Calls `resume` when the hold is released or the
        broker stops.

        is_repeated_at_start  whether the broker repeats this step after a restart, because the step is recorded in its
                              log. If so, `resume` is not called when the broker stops, because the rule must still hold
                              the step back after the restart
        """
        waiter = _Waiter(resume, _waiter_facts(point, occurrence), is_repeated_at_start)
        self._waiting.setdefault(name, {})[who] = waiter

    def remove_waiter(self, name: str, who: object) -> None:
        self._waiting.get(name, {}).pop(who, None)

    def counts(self) -> dict[str, int]:
        return {name: len(waiting) for name, waiting in self._waiting.items() if waiting}

    @property
    def are_many(self) -> bool:
        """True if so many requests are waiting that requests from disconnected clients should be dropped."""
        return sum(map(len, self._waiting.values())) > MANY

    def as_json(self) -> list[dict[str, object]]:
        """Returns, for each hold, the number of waiters and descriptions of the first `MAX_LISTED_ELEMENTS` waiters."""
        return [
            {
                "name": name,
                "waiting": len(waiting),
                "who": [each.facts for each in list(waiting.values())[:MAX_LISTED_ELEMENTS]],
            }
            for name, waiting in self._waiting.items()
            if waiting
        ]

    def release(self, name: str) -> ReleaseResult:
        """Releases everything waiting at this hold."""
        waiting = self._waiting.pop(name, {})
        answers = [each.resume() for each in waiting.values()]
        return ReleaseResult(len(waiting), [each for each in answers if each is not None])

    def end(self) -> None:
        """Ends all holds because the broker is stopping.

        Steps that the broker repeats after its next start are forgotten; all other waiters are released.
        """
        for name in self.counts():
            for each in self._waiting.pop(name).values():
                if not each.is_repeated_at_start:
                    each.resume()


class Rules:
    """The rules of one cluster, and the requests, markers and steps waiting at the rules' holds.

    by_name  the rules in the order in which they were added
    """

    def __init__(self, timers: Timers) -> None:
        self.by_name: dict[str, Rule] = {}
        self.holds = Holds()
        self.timers = timers

    def action(self, point: Point, occurrence: Occurrence) -> Action:
        """Returns the action of the first rule that acts on this request or step and does more than observe it. Returns
        OBSERVE if no rule does.

        All rules for this point count their matches and hits.
        """
        found = OBSERVE
        for rule in self.by_name.values():
            if rule.at is point and rule.count_match(occurrence) and found.only_observes:
                found = rule.do
        return found

    def pause(
        self, point: Point, occurrence: Occurrence, resume: Callable[[], None], *, is_repeated_at_start: bool = False
    ) -> None:
        """Applies the rules for a point. Calls `resume` immediately, after a delay, or when a hold is released.

        is_repeated_at_start  see `Holds.add_waiter`
        """
        self.pause_for(
            self.action(point, occurrence), point, occurrence, resume, is_repeated_at_start=is_repeated_at_start
        )

    def pause_for(
        self,
        action: Action,
        point: Point,
        occurrence: Occurrence,
        resume: Callable[[], None],
        *,
        is_repeated_at_start: bool = False,
    ) -> None:
        """Like `pause`, for an action returned by the method `action`."""
        if action.hold is not None:
            self.holds.add_waiter(
                action.hold, object(), resume, point, occurrence, is_repeated_at_start=is_repeated_at_start
            )
        elif action.delay_ms:
            self.timers.after(action.delay_ms, resume)
        else:
            resume()

    def release(self, name: str) -> ReleaseResult:
        """Releases everything waiting at this hold. Raises Problem if neither a rule nor a waiter uses the hold."""
        declared = {rule.do.hold for rule in self.by_name.values() if rule.do.hold is not None}
        names = declared | self.holds.counts().keys()
        if name not in names:
            raise Problem(404, f"no rule has a hold named {name}{nearest(name, names)}", field="name")
        return self.holds.release(name)

    def remove(self, name: str | None) -> tuple[list[Rule], Sequence[Deferred[None]]]:
        """Removes a rule, or all rules if `name` is None. Raises Problem if there is no rule of this name.

        If no other rule uses the hold of a removed rule, everything waiting at the hold is released. Returns the
        removed rules, and Deferreds that resolve when the effects of these releases are complete.
        """
        if name is not None and name not in self.by_name:
            raise Problem(404, f"there is no rule named {name}")
        removed = list(self.by_name.values()) if name is None else [self.by_name[name]]
        for rule in removed:
            del self.by_name[rule.name]
        remaining = {rule.do.hold for rule in self.by_name.values()}
        effects: list[Deferred[None]] = []
        for rule in removed:
            if rule.do.hold is not None and rule.do.hold not in remaining:
                effects += self.holds.release(rule.do.hold).effects
        return removed, effects

    def refuses_for_good(self, occurrence: Occurrence) -> bool:
        """Returns whether a rule refuses this marker and will refuse every retry until the rule is removed."""
        for rule in self.by_name.values():
            if rule.at is Point.MARKER and rule.acts_on(occurrence) and not rule.do.only_observes:
                return rule.do.error is not None and rule.acts_always
        return False

    def record_failed_edit(self, action: Action, why: str) -> None:
        """Subtracts the counted hit of the rule with this action, because its edits could not be applied to the
        response."""
        for rule in self.by_name.values():
            if rule.do is action:
                rule.record_failed_edit(why)

    def places(self, occurrence: Occurrence, action: Action) -> set[tuple[str, int | None]]:
        """Returns the partitions of a request that an action applies to."""
        topics = {rule.match.get("topic") for rule in self.by_name.values() if rule.do is action} - {None}
        numbers = action.partitions or ()
        return {
            (topic, index) for topic, index in occurrence.places if index in numbers and (not topics or topic in topics)
        }


def _waiter_facts(point: Point, occurrence: Occurrence) -> WaiterFacts:
    """Describes a waiter by its point, and by the client, transaction, group and partitions of its request or step."""
    facts: dict[str, object] = {"at": point.value}
    if occurrence.api is not None:
        facts["api"] = occurrence.api.kafka_name
    connection = occurrence.connection_facts
    facts |= {name: connection[name] for name in ("client_id", "connection") if connection.get(name) is not None}
    for name in ("transactional_id", "group", "producer_id"):
        values = [each for each in occurrence.field_values.get(name, ()) if each not in (None, "", -1)]
        if len(values) == 1:
            facts[name] = values[0]
    partitions = sorted((topic, index) for topic, index in occurrence.places if index is not None)
    topics = sorted({topic for topic, _ in occurrence.places} - {topic for topic, _ in partitions})
    facts["partitions"] = [f"{topic}-{index}" for topic, index in partitions][:MAX_LISTED_ELEMENTS]
    if topics:
        facts["topics"] = topics[:MAX_LISTED_ELEMENTS]
    return facts
