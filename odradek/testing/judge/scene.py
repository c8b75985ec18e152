"""Stores the state that rules keep between exchanges, and the rules' results.

State is looked up by its type and a key, such as a connection, a producer id and epoch, a transactional id, a member or
a session. For each type, the MAX_STATES most recently used states are kept.

Results are stored for the connection of the judged request. Connections that use the same producer id and epoch, member
id, or telemetry client instance id are treated as one client. The MAX_STATES most recently used ids are kept.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from odradek.testing.judge.exchanges import Connection, Exchange
from odradek.testing.judge.topics import Topics

T = TypeVar("T")
MAX_STATES: Final = 20_000
MAX_PROOF_EXCHANGES: Final = 4  # maximum number of exchanges in the proof of a violation


@dataclass(slots=True)
class Finding:
    """The first violation of a rule.

    proof  earlier exchanges, followed by the exchange that breaks the rule; empty if the application reported a
           violation that the traffic does not show
    """

    why: str
    proof: list[Exchange]


@dataclass(slots=True)
class Tally:
    """Counts how many times a rule was kept and how many times it was broken."""

    kept: int = 0
    broken: int = 0
    first: Finding | None = None

    def add(self, other: Tally) -> None:
        self.kept += other.kept
        self.broken += other.broken
        if self.first is None or (other.first is not None and _number(other.first) < _number(self.first)):
            self.first = other.first or self.first


def _number(finding: Finding) -> int:
    return finding.proof[-1].number if finding.proof else 0


@dataclass(slots=True)
class Client:
    """A client, which consists of one or more connections. Its name and version come from its last ApiVersions request.
    `began_us` and `ended_us` are the times of its first and last request."""

    name: str
    version: str
    client_ids: set[str] = field(default_factory=set)
    connections: int = 0
    began_us: int = 0
    ended_us: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)


class Scene:
    """The state and results of one judged recording."""

    def __init__(self) -> None:
        self.now_us = 0
        self.topics = Topics()
        self._states: dict[type, OrderedDict[Hashable, object]] = {}
        self._earlier_connection: dict[int, int] = {}  # for each connection, an earlier connection of the same client
        self._seen_at: OrderedDict[Hashable, int] = OrderedDict()  # for each id, a connection that has used it
        self._connections: dict[int, Connection] = {}
        self._tallies: dict[int, dict[str, Tally]] = {}
        self._actions: list[tuple[int, int, Callable[[], None]]] = []
        self._action_count = 0

    def state(self, kind: type[T], *key: Hashable) -> T:
        """Returns the state of this type and key. Creates it on first use."""
        states = self._states.get(kind)
        if states is None:
            states = self._states[kind] = OrderedDict()
        found = states.get(key)
        if found is None:
            found = states[key] = kind()
            if len(states) > MAX_STATES:
                states.popitem(last=False)
        else:
            states.move_to_end(key)
        assert isinstance(found, kind)
        return found

    def find_state(self, kind: type[T], *key: Hashable) -> T | None:
        """Returns the state of this type and key, or None if it does not exist."""
        states = self._states.get(kind)
        found = None if states is None else states.get(key)
        assert found is None or isinstance(found, kind)
        return found

    def record_kept(self, rule: str, exchange: Exchange) -> None:
        self._tally(rule, exchange).kept += 1

    def record_broken(self, rule: str, exchange: Exchange, why: str, *before: Exchange | None) -> None:
        """Records that an exchange breaks a rule. `before` contains the earlier exchanges that prove it, oldest
        first."""
        tally = self._tally(rule, exchange)
        tally.broken += 1
        if tally.first is None:
            proof = [each for each in before if each is not None and each is not exchange]
            tally.first = Finding(why, [*proof[-MAX_PROOF_EXCHANGES + 1 :], exchange])

    def decide(self, rule: str, is_kept: bool, exchange: Exchange, why: str, *before: Exchange | None) -> None:
        if is_kept:
            self.record_kept(rule, exchange)
        else:
            self.record_broken(rule, exchange, why, *before)

    def run_later(self, delay_us: int, action: Callable[[], None]) -> None:
        """Runs `action` before the first event that occurs at least `delay_us` later. The action never runs if the
        recording ends before that."""
        self._action_count += 1
        heapq.heappush(self._actions, (self.now_us + delay_us, self._action_count, action))

    def move_to(self, now_us: int) -> None:
        while self._actions and self._actions[0][0] <= now_us:
            self.now_us, _, action = heapq.heappop(self._actions)
            action()
        self.now_us = now_us

    def join(self, connection: Connection, *id_: Hashable) -> None:
        """Records that the connection uses this id. All connections that use the same id are treated as one client."""
        seen_at = self._seen_at
        other = seen_at.setdefault(id_, connection.number)
        seen_at.move_to_end(id_)
        if len(seen_at) > MAX_STATES:
            seen_at.popitem(last=False)
        if other != connection.number:
            one, two = sorted((self._client_of(other), self._client_of(connection.number)))
            if one != two:
                self._earlier_connection[two] = one

    def _client_of(self, number: int) -> int:
        while (earlier := self._earlier_connection.get(number)) is not None:
            number = earlier
        return number

    def _tally(self, rule: str, exchange: Exchange) -> Tally:
        connection = exchange.connection
        self._connections[connection.number] = connection
        tallies = self._tallies.setdefault(connection.number, {})
        tally = tallies.get(rule)
        if tally is None:
            tally = tallies[rule] = Tally()
        return tally

    def clients(self) -> list[Client]:
        """Returns all clients whose requests were judged, in the order of their first connections. Excludes brokers."""
        found: dict[int, Client] = {}
        for number, tallies in sorted(self._tallies.items()):
            connection = self._connections[number]
            if connection.is_of_broker:
                continue
            root = self._client_of(number)
            client = found.setdefault(root, Client(connection.software, connection.software_version))
            if client.name == "unknown":
                client.name, client.version = connection.software, connection.software_version
            first_us, last_us = connection.first_us, connection.last_us
            client.began_us = min(client.began_us, first_us) if client.connections else first_us
            client.ended_us = max(client.ended_us, last_us)
            client.connections += 1
            if connection.client_id:
                client.client_ids.add(connection.client_id)
            for rule, tally in tallies.items():
                client.tallies.setdefault(rule, Tally()).add(tally)
        return list(found.values())
