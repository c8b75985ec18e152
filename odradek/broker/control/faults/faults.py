"""The faults of one cluster: the rules and odd responses that a test has chosen. `Faults` applies them to the cluster's
running broker.

`rules.py` chooses a rule's action. While a cluster has rules for requests, `FaultyRequests` sits between the
connections and the dispatcher. A broker without the control interface does not use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.control.faults.faulty_requests import FaultyRequests
from odradek.broker.control.faults.rule_json import parse_rule
from odradek.broker.control.faults.rules import REPLY_POINTS, Point, Rule, Rules
from odradek.broker.control.odd.odd import Odd
from odradek.broker.control.odd.odd_requests import OddRequests
from odradek.broker.control.problems import Problem
from odradek.broker.control.recording.exchanges import Exchanges
from odradek.broker.network.controlled_connection import observe

if TYPE_CHECKING:
    from odradek.broker.control.nodes.nodes import Nodes
    from odradek.broker.control.recording.recorder import Recorder
    from odradek.broker.network.controlled_connection import ObserverFactory
    from odradek.broker.runtime.controlled_time import ControlledTime
    from odradek.broker.runtime.waiting import Deferred
    from odradek.broker.serving import ServingBroker

MAX_RULES = 1000
REQUEST_POINTS = REPLY_POINTS | {Point.ACCEPTED}


class Faults:
    """The fault rules and odd responses that a test uses to change the requests and steps of one cluster. Also records
    the cluster's exchanges."""

    def __init__(self, time: ControlledTime, now_s: Callable[[], float], recorder: Recorder | None = None) -> None:
        """Creates an empty set of faults for a cluster.

        recorder  records exchanges as the clients see them; added to `recorders`, which `install` connects to the
                  broker
        """
        self.recorders = [] if recorder is None else [recorder]
        self.rules = Rules(time)
        self.exchanges = Exchanges(time, now_s)
        self.odd: Odd | None = None
        self._serving: ServingBroker | None = None
        self._nodes: Nodes | None = None
        self._numbers = 0

    def use_clock(self, time: ControlledTime) -> None:
        """Makes the rules and the exchanges use this clock."""
        self.rules.timers = self.exchanges.recent.time = time

    def attach(self, serving: ServingBroker, nodes: Nodes) -> None:
        """Applies the rules to a broker that has just started."""
        self._serving = serving
        self._nodes = nodes
        self.install()

    def detach(self) -> None:
        """Resumes held requests, so that each is answered or its connection is closed. Must be called before the broker
        stops."""
        self._serving = self._nodes = None
        self.rules.holds.end()

    def add(self, definition: object) -> list[Rule]:
        """Parses one rule or a list of rules and adds all of them. If a rule is invalid, raises Problem and adds no
        rule."""
        parsed: dict[str, Rule] = {}
        for each in definition if isinstance(definition, list) else [definition]:
            self._numbers += 1
            rule = parse_rule(each, f"rule-{self._numbers}")
            if rule.name in self.rules.by_name or rule.name in parsed:
                raise Problem(409, f"there is already a rule named {rule.name}", field="name")
            parsed[rule.name] = rule
        if len(self.rules.by_name) + len(parsed) > MAX_RULES:
            raise Problem(409, f"a cluster has at most {MAX_RULES} rules: delete some first")
        self.rules.by_name.update(parsed)
        self.install()
        return list(parsed.values())

    def record_call(self, method: str, path: str, body: object) -> None:
        """Records a call to the control interface, with the number of waiters at each hold, before the call takes
        effect."""
        for recorder in self.recorders:
            recorder.record_event(
                {"called": {"method": method, "path": path, "body": body, "holds": self.rules.holds.counts()}}
            )

    def be_odd(self, seed: int, percent: Mapping[str, int] | None = None) -> None:
        """Makes the cluster send odd responses, which the protocol allows but Kafka rarely sends.

        seed     the seed for the random decisions; 0 turns odd responses off
        percent  for each oddity, the percentage of cases in which it is applied
        """
        if self.odd is not None:
            self.odd.is_over = True
        self.odd = Odd.of(seed, percent or {}) if seed else None
        self.install()

    def remove(self, name: str | None) -> tuple[list[Rule], Sequence[Deferred[None]]]:
        """Removes a rule, or all rules if `name` is None; see `Rules.remove`. Raises Problem."""
        removed, effects = self.rules.remove(name)
        self.install()
        return removed, effects

    def install(self) -> None:
        """Installs the rules, odd responses and observers in front of the request handling of each running node.

        Observers are the outermost layer, so they see the same exchanges as the clients.
        """
        if self._serving is None or self._nodes is None:
            return
        is_needed = any(rule.at in REQUEST_POINTS for rule in self.rules.by_name.values())
        for server, plain, node in self._nodes.running_servers():
            if self.odd is not None:
                plain = OddRequests(plain, self.odd, self._serving, self.rules.timers, node)
            answering = FaultyRequests(plain, self.rules, self._serving, node) if is_needed else plain
            observers: list[ObserverFactory] = [recorder.observer_of(node) for recorder in self.recorders]
            if self.exchanges.are_kept:
                observers.append(self.exchanges.recent)
            server.requests = answering
            observe(server, observers)
