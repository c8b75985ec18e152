"""Describes the process's clusters for the page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from odradek.broker.control.clusters.clusters import DEFAULT
from odradek.broker.control.faults.rule_json import rule_as_json
from odradek.broker.control.problems import Problem
from odradek.broker.http.page.served import SHOWN, ViewedBroker
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.broker.control.clusters.clusters import Cluster, Clusters
    from odradek.broker.control.faults.rules import Rule
    from odradek.broker.http.page.served import JsonValue, Order, View


class PageClusters:
    """The process's clusters, as the page shows them. Implements
    `odradek.broker.http.page.served.ControlledClusters`."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def list(self, part: str, order: Order) -> View:
        found = [each for each in self._clusters if part in each.id]
        listed: dict[str, JsonValue] = {"total": len(found), "from": order.start}
        if not order.by:
            return {**listed, "clusters": [row(each) for each in found[order.start : order.end]]}
        return {**listed, "clusters": order.visible_rows([row(each) for each in found])}

    def show(self, name: str) -> View:
        cluster = self._get(name)
        rules = cluster.faults.rules.by_name.values()
        return {
            **row(cluster),
            "is_default": cluster.id == DEFAULT,
            "node_states": [] if cluster.nodes is None else [cast("View", node.as_json()) for node in cluster.nodes],
            "checkpoints": sorted(cluster.checkpoints),
            "now_ms": cluster.time.now_ms(),
            "rule_list": [rule_row(each) for each in list(rules)[:SHOWN]],
            "hold_list": cast("list[View]", cluster.faults.rules.holds.as_json()[:SHOWN]),
        }

    def broker_of(self, name: str, default: ViewedBroker) -> ViewedBroker:
        cluster = self._get(name or DEFAULT)
        holds = cast("Callable[[], list[View]]", cluster.faults.rules.holds.as_json)
        if cluster.id == DEFAULT:
            return replace(default, clusters=self, holds=holds)
        serving, nodes = cluster.serving, cluster.nodes
        if serving is None or nodes is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"The cluster {name} has crashed. Restart it to use it again."
            )
        servers = [server for server, _, _ in nodes.running_servers()]
        traffic = serving.traffic._replace(servers=servers)
        return ViewedBroker(serving.broker, traffic, default.warnings, self, holds)

    def tokens(self, name: str | None) -> Sequence[str]:
        cluster = self._clusters.find(name)
        return [] if cluster is None or cluster.id == DEFAULT else [cluster.token]

    def _get(self, name: str) -> Cluster:
        try:
            return self._clusters.get(name)
        except Problem:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no cluster {name}.") from None


def row(cluster: Cluster) -> dict[str, JsonValue]:
    faults = cluster.faults
    facts = cluster.as_json()
    return {
        "id": cluster.id,
        "bootstrap": str(facts["bootstrap"]),
        "state": str(facts["state"]),
        "nodes": len(cluster.node_ids),
        "ttl_s": cluster.ttl_s,
        "frozen": cluster.time.is_frozen,
        "rules": len(faults.rules.by_name),
        "unused": sum(is_unused(rule) for rule in faults.rules.by_name.values()),
        "waiting": sum(faults.rules.holds.counts().values()),
    }


def is_unused(rule: Rule) -> bool:
    """Returns whether a rule was expected to act but did not, because it matched nothing or because its edits could not
    be applied to any response."""
    return not rule.matched - rule.failed_edits and not rule.may_be_unused


def rule_row(rule: Rule) -> JsonValue:
    facts = cast("View", rule_as_json(rule))
    return {
        "name": rule.name,
        "at": rule.at.value,
        "match": cast("View", rule.match),
        "do": facts["do"],
        "counts": {name: facts[name] for name in ("after", "every", "times", "probability", "seed") if name in facts},
        "matched": rule.matched,
        "hits": rule.hits,
        "unused": is_unused(rule),
    }
