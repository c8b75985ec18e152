"""Members of share groups that behave like real clients over a faulty network. Each member is a script of `Ask`s.

`Sharer` joins, sends heartbeats and fetches. `Worker` writes an output for each record and acknowledges the record in
the same transaction. `PlainMember` acknowledges without a transaction. All of them record what they learn in a
`Ledger`, which the checks use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.struct import Message
from tests.checker.history import Answer
from tests.simulation import share_requests as requests
from tests.simulation.producers import RETRIABLE, Ask, Attempt, Batch, Producer, ProducerEnded, Script
from tests.simulation.share_requests import ACCEPT, REJECT, RELEASE, RENEW, AcquiredRecord, Kinds, Record

E = ErrorCode
TRIES = 8
NO_SESSION = frozenset({E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH})
REJOIN = frozenset({E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.GROUP_ID_NOT_FOUND})


@dataclass(slots=True)
class Ledger:
    """Everything that the members of one share group have learned.

    locks     by record: the member that certainly holds it, and the end of the lock
    finished  records whose acceptance or rejection is confirmed by a response
    maybe     records whose acceptance or rejection was requested
    used_up   records that were delivered as often as the limit allows
    inputs    the input of each output
    """

    group: str
    topic: str
    lock_ms: int
    limit: int
    locks: dict[Record, tuple[str, int]] = field(default_factory=dict)
    finished: set[Record] = field(default_factory=set)
    maybe: set[Record] = field(default_factory=set)
    used_up: set[Record] = field(default_factory=set)
    deliveries: Counter[Record] = field(default_factory=Counter)
    inputs: dict[bytes, Record] = field(default_factory=dict)

    def delivered(self, member: str, acquired: AcquiredRecord, *, asked_ms: int, now_ms: int) -> None:
        record, count = acquired.record, acquired.delivery_count
        what = f"{record} of {self.group} is delivered to {member} for the {count}. time"
        assert record not in self.finished, f"{what} after it was finished"
        holder, until_ms = self.locks.get(record, (member, 0))
        assert holder == member or until_ms <= now_ms, f"{what}, while {holder} holds it"
        assert 1 <= count <= self.limit, f"{what}, and {self.limit} are allowed"
        self.deliveries[record] += 1
        self.locks[record] = (member, asked_ms + self.lock_ms)
        if count == self.limit:
            self.used_up.add(record)

    def forget(self, member: str) -> None:
        """Removes a member's locks, because its session has ended or its broker has died."""
        self.locks = {record: held for record, held in self.locks.items() if held[0] != member}


class Surroundings(Protocol):
    """The parts of the world that a member uses."""

    topic_id: bytes

    def disconnect(self, client: str) -> None: ...


class Sharer:
    """The share consumer of a client. `held` maps each acquired record to the expiry time of its lock."""

    def __init__(self, name: str, ledger: Ledger, world: Surroundings, rng: Random, now_ms: Callable[[], int]) -> None:
        self.name = name
        self.ledger = ledger
        self._world = world
        self._rng = rng
        self._now_ms = now_ms
        self._lines = 0
        self.epoch = requests.JOIN
        self.session = requests.OPEN
        self.assigned: set[int] = set()
        self.held: dict[Record, int] = {}
        self._tells_all = True

    @property
    def client(self) -> str:
        """Name of the connection, which changes with each reconnect."""
        return f"{self.name}/{self._lines}"

    def reconnect(self) -> None:
        """Opens a new connection, as a client does after waiting too long for a response."""
        self._world.disconnect(self.client)
        self._lines += 1
        self.lose_session()

    def lose_session(self) -> None:
        self.session = requests.OPEN
        self.held.clear()
        self.ledger.forget(self.name)

    def ask(self, message: Message, version: int) -> Generator[Sequence[Ask] | int, list[Any], Any]:
        (answer,) = yield [Ask(message, version, self.client)]
        if answer is None:
            self.reconnect()
        return answer

    def beat(self) -> Script:
        topics = [self.ledger.topic] if self._tells_all else None
        self._tells_all = True
        request = requests.heartbeat(self.ledger.group, self.name, self.epoch, topics)
        answer = yield from self.ask(request, requests.HEARTBEAT_VERSION)
        code = None if answer is None else E(answer.error_code)
        if code in REJOIN:
            self.epoch, self.assigned = requests.JOIN, set()
        if code is not E.NONE:
            return
        assert answer.member_epoch >= self.epoch, f"the epoch of {self.name} went back"
        self.epoch, self._tells_all = answer.member_epoch, False
        assigned = requests.assigned_in(answer)
        self.assigned = self.assigned if assigned is None else assigned

    def leave(self) -> Script:
        request = requests.heartbeat(self.ledger.group, self.name, requests.LEAVE, [])
        yield from self.ask(request, requests.HEARTBEAT_VERSION)
        self.epoch, self.assigned, self._tells_all = requests.JOIN, set(), True

    def close_session(self) -> Script:
        request = requests.acknowledge(self.ledger.group, self.name, requests.FINAL, self._world.topic_id, {})
        self.ledger.forget(self.name)  # Other members may acquire the records before the response arrives.
        yield from self.ask(request, requests.ACKNOWLEDGE_VERSION)
        self.lose_session()

    def fetch(self) -> Script:
        rng, asked_ms = self._rng, self._now_ms()
        request = requests.fetch(
            self.ledger.group,
            self.name,
            self.session,
            self._world.topic_id,
            self.assigned,
            max_records=rng.choice([1, 2, 5]),
            mode=rng.choice([0, 1]),
        )
        answer = yield from self.ask(request, requests.FETCH_VERSION)
        if not self._is_accepted(answer):
            return
        for each in requests.acquired_in(answer):
            self.ledger.delivered(self.name, each, asked_ms=asked_ms, now_ms=self._now_ms())
            self.held[each.record] = asked_ms + self.ledger.lock_ms

    def _is_accepted(self, answer: Any) -> bool:
        """Returns whether the session accepted the request."""
        if answer is None:
            return False
        if answer.error_code:
            self.lose_session()
            return False
        self.session += 1
        return True

    def acknowledge(self, kinds: Kinds) -> Script:
        until_ms = {record: self.held[record] for record in kinds}
        for record in kinds:
            if kinds[record] != RENEW:
                del self.held[record]
                self.ledger.locks.pop(record, None)
        ends = {record for record, kind in kinds.items() if kind in (ACCEPT, REJECT)}
        self.ledger.maybe |= ends
        asked_ms = self._now_ms()
        request = requests.acknowledge(self.ledger.group, self.name, self.session, self._world.topic_id, kinds)
        answer = yield from self.ask(request, requests.ACKNOWLEDGE_VERSION)
        if not self._is_accepted(answer):
            return
        codes = requests.codes_in(answer)
        for record, kind in kinds.items():
            # If the lock had expired, a failed write might have archived the record, so a success would not prove that
            # the acknowledgement was stored.
            if codes[record[0]] == 0 and record in ends and until_ms[record] > self._now_ms():
                self.ledger.finished.add(record)
            elif codes[record[0]] == 0 and kind == RENEW:
                self.ledger.locks[record] = (self.name, asked_ms + self.ledger.lock_ms)
                self.held[record] = asked_ms + self.ledger.lock_ms

    def drop_overdue(self) -> None:
        self.held = {record: until_ms for record, until_ms in self.held.items() if until_ms > self._now_ms()}


class PlainMember(Producer):
    """A member that acknowledges without transactions. Subclasses `Producer` only because `World` runs nothing but
    producers."""

    def __init__(self, *args: Any, sharer: Sharer, **settings: Any) -> None:
        super().__init__(*args, is_new=True, **settings)
        self.sharer = sharer

    def script(self) -> Script:
        sharer, rng = self.sharer, self._rng
        for _ in range(rng.randint(10, 40)):
            if not sharer.assigned or rng.random() < 0.3:
                yield from sharer.beat()
            if sharer.assigned and rng.random() < 0.8:
                yield from sharer.fetch()
            sharer.drop_overdue()
            chosen = rng.sample(sorted(sharer.held), rng.randint(0, len(sharer.held)))
            if chosen:
                yield from sharer.acknowledge(
                    {record: rng.choice([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]) for record in chosen}
                )
            if rng.random() < 0.05:
                yield from sharer.close_session()
            yield rng.choice([1, 50, 50, 400])
        if rng.random() < 0.5:
            yield from sharer.leave()
        sharer.reconnect()


class Worker(Producer):
    """A member that produces an output for each record, and acknowledges the record in the same transaction."""

    def __init__(self, *args: Any, sharer: Sharer, topic_id: bytes, **settings: Any) -> None:
        super().__init__(*args, is_new=True, **settings)
        self.sharer = sharer
        self._topic_id = topic_id

    def script(self) -> Script:
        yield from super().script()
        if self._rng.random() < 0.3:
            yield from self.sharer.leave()
        self.sharer.reconnect()

    def _transaction(self) -> Script:
        self.connection += 1
        sharer, rng = self.sharer, self._rng
        if not sharer.assigned or rng.random() < 0.2:
            yield from sharer.beat()
        if sharer.assigned and (not sharer.held or rng.random() < 0.3):
            yield from sharer.fetch()
        sharer.drop_overdue()
        if not sharer.held:
            yield rng.choice([20, 100])
            return
        attempt = self._book.begin(self.name, f"group of {self.transactional_id}")
        chosen = rng.sample(sorted(sharer.held), rng.randint(1, len(sharer.held)))
        batches = [self._output(attempt, record) for record in chosen]
        is_well = True
        for step in rng.sample(["produce", "stage"], 2):
            if is_well and step == "produce":
                is_well = yield from self._produce(batches)
            elif is_well:
                is_well = yield from self._stage(chosen)
        if rng.random() < 0.1:
            yield rng.choice([500, 2 * sharer.ledger.lock_ms])
        if rng.random() < 0.03:
            raise ProducerEnded  # the process dies
        is_commit = is_well and rng.random() < 0.75
        if is_commit:
            sharer.ledger.maybe |= set(chosen)
        yield from self._end(attempt, is_commit=is_commit)
        if is_commit and attempt.answer is Answer.YES:
            sharer.ledger.finished |= set(chosen)
        for record in chosen if is_commit or rng.random() < 0.5 else ():
            sharer.held.pop(record, None)  # The next transaction retries the records that are not removed here.

    def _output(self, attempt: Attempt, record: Record) -> Batch:
        partition = self._rng.choice(self._partitions)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        value = f"{attempt.name}/{record[0]}.{record[1]}".encode()
        batch = Batch(partition, [value], sequence)
        attempt.batches.append(batch)
        self._book.by_value[value] = attempt
        self.sharer.ledger.inputs[value] = record
        return batch

    def _stage(self, chosen: list[Record]) -> Generator[Sequence[Ask] | int, list[Any], bool]:
        kind = self._rng.choice([ACCEPT, ACCEPT, REJECT])
        request = requests.stage(
            self.sharer.ledger.group,
            self.sharer.name,
            self.sharer.epoch,
            self._topic_id,
            dict.fromkeys(chosen, kind),
            transactional_id=self.transactional_id,
            pair=self._pair,
        )
        for _ in range(TRIES):
            (answer,) = yield [Ask(request, requests.STAGE_VERSION)]
            if answer is not None:
                codes = {E(answer.error_code), *map(E, requests.codes_in(answer).values())}
                if codes == {E.NONE}:
                    return True
                if not codes <= RETRIABLE | {E.NONE, E.OPERATION_NOT_ATTEMPTED}:
                    return False
            yield 20
        return False
