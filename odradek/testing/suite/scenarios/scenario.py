"""Defines the class for scenarios, and the faults that several scenarios use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.testing.judge.rules import RULES
from odradek.testing.suite.stage import JUDGED, ScenarioCluster

NODES: Final = 3
Play: TypeAlias = Callable[[ScenarioCluster], "str | None"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A rule and the function that tests it.

    nodes        the number of nodes in the cluster
    settings     the cluster's settings
    is_decisive  whether the scenario alone decides the rule. Set it if traffic is enough to decide the rule for some
                 clients, but not for all.
    """

    rule: str
    play: Play
    nodes: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_decisive: bool = False

    @property
    def decides(self) -> bool:
        """True if the rule is considered kept when the application receives the expected results. If False, the traffic
        must also show that the client keeps the rule."""
        return self.is_decisive or RULES[self.rule].needs is not None

    @property
    def name(self) -> str:
        return self.play.__name__.replace("_", " ")


def refuse(stage: ScenarioCluster, api: str, error: str, times: int = 1, after: int = 0) -> None:
    stage.kafka.fault({"match": {"api": api}, "do": {"error": error}, "times": times, "after": after})


def edit(stage: ScenarioCluster, api: str, changes: Mapping[str, int | dict[str, bool]], name: str = "edited") -> None:
    stage.kafka.fault({"name": name, "match": {"api": api}, "at": "applied", "do": {"edit": dict(changes)}})


def name_old_leader(stage: ScenarioCluster, node: int) -> None:
    """Adds a rule that makes Metadata name `node` as the leader, with a leader epoch older than all others."""
    path = "Topics[*].Partitions[*]"
    changes: dict[str, object] = {f"{path}.LeaderId": node, f"{path}.LeaderEpoch": 0}
    match = {"api": "Metadata", "client_id": JUDGED}
    stage.kafka.fault({"name": "old", "match": match, "at": "applied", "do": {"edit": changes}, "unused": "ok"})


def count_requests(stage: ScenarioCluster, api: str, node: int) -> None:
    """Adds a rule that counts the requests that the judged client sends to one node."""
    match = {"api": api, "node": node, "client_id": JUDGED}
    stage.kafka.fault({"name": f"{api} at {node}", "match": match, "do": {"observe": True}, "unused": "ok"})


def hits(stage: ScenarioCluster, rule: str) -> int:
    return next(int(each["hits"]) for each in stage.kafka.faults() if each["name"] == rule)
