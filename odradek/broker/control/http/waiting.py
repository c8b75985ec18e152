"""Waits for a condition on behalf of a test. Polls the state from `state.py` until the condition is met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.control.http.state import client, group_row, member, partition_row, share_record, transaction_row
from odradek.broker.control.problems import (
    Problem,
    check_known_fields,
    invalid_field,
    text,
    unknown_field,
    whole_number,
)

if TYPE_CHECKING:
    from odradek.broker.control.clusters.clusters import Cluster
    from odradek.broker.runtime.waiting import Deferred

POLL_INTERVAL_S = 0.002
SETTLES_S = 1.0  # maximum time that a call waits for the broker to become idle while clients keep it busy
KINDS: Mapping[str, frozenset[str]] = {  # subject of a condition → fields that the condition can have
    "transaction": frozenset({"state"}),
    "group": frozenset({"state", "members"}),
    "topic": frozenset(
        {"partition", "leader", "leader_epoch", "log_end_offset", "last_stable_offset", "log_start_offset"}
    ),
    "fault": frozenset({"hits"}),
    "hold": frozenset({"waiting"}),
    "member": frozenset({"group", "owns"}),
    "share_group": frozenset({"topic", "partition", "offset", "state", "deliveries"}),
    "client": frozenset({"connections", "idle"}),
}
# If a condition has both the key and the value as fields, the value names the subject.
SUBJECTS = {"group": "member", "topic": "share_group"}
PLACES = frozenset({"partition", "group", "topic", "offset"})  # fields that identify the subject and are not compared
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "fault": {"hits": 1},
    "hold": {"waiting": 1},
    "client": {"connections": 1},
}
OFFSETS = frozenset({"log_end_offset", "last_stable_offset", "log_start_offset"})
AT_LEAST = OFFSETS | {"hits", "waiting", "connections", "deliveries", "leader_epoch"}
Facts: TypeAlias = Mapping[str, object]


async def wait(
    cluster: Cluster, condition: Mapping[str, object], timeout_ms: int, is_disconnected: Callable[[], bool]
) -> tuple[bool, Facts]:
    """Waits for a condition. Returns whether the condition was met in time, and the current state of its subject.
    Raises Problem.

    is_disconnected  returns whether the client has disconnected; if so, the wait ends
    """
    kind = _checked(condition)
    condition = {**DEFAULTS.get(kind, {}), **condition}
    look = OBSERVATIONS[kind]
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_ms / 1000
    expected = [name for name in KINDS[kind] - PLACES if name in condition]
    facts: Facts = {kind: condition[kind]}
    while True:
        cluster.require_there()
        if not cluster.is_restarting:
            facts = look(cluster, condition)
            if "error" not in facts and all(_is_met(name, condition[name], facts.get(name)) for name in expected):
                return True, facts
        if loop.time() >= until_s or is_disconnected():
            return False, facts
        await asyncio.sleep(POLL_INTERVAL_S)


async def wait_for_effects(cluster: Cluster, effects: Sequence[Deferred[None]]) -> None:
    """Waits until the released markers are in their logs and the broker is idle.

    The wait for an idle broker ends after SETTLES_S, because active clients may keep the broker busy indefinitely.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + SETTLES_S
    await cluster.wait_until_idle(lambda: loop.time() >= until_s)
    serving = cluster.serving
    while serving is not None and cluster.serving is serving and not all(each.is_done for each in effects):
        await asyncio.sleep(POLL_INTERVAL_S)


def _is_met(name: str, expected: object, found: object) -> bool:
    if name in AT_LEAST and isinstance(found, int) and isinstance(expected, int):
        return found >= expected
    if name == "owns":
        return isinstance(found, list) and isinstance(expected, list) and set(expected) <= set(found)
    return found == expected


def _checked(condition: Mapping[str, object]) -> str:
    kinds = [name for name in KINDS if name in condition and SUBJECTS.get(name) not in condition]
    if len(kinds) != 1:
        for name in condition:
            if not any(name in each for each in KINDS.values()) and name not in KINDS:
                raise unknown_field(name, name, KINDS)
        raise Problem(400, "a condition must name exactly one thing to wait for", allowed=", ".join(KINDS))
    kind = kinds[0]
    check_known_fields(condition, KINDS[kind] | {kind})
    text(condition[kind], kind)
    criteria = KINDS[kind] - PLACES
    for name in ("group",) if kind == "member" else ("topic", "offset") if kind == "share_group" else ():
        if name not in condition:
            raise Problem(400, f"{kind} needs {name}", field=name)
    if not criteria & condition.keys() and kind not in DEFAULTS:
        raise Problem(
            400, f"the condition names a {kind}, but not the state to wait for", allowed=", ".join(sorted(criteria))
        )
    for name in condition:
        if name in ("state", "group", "topic"):
            if name != "state" or condition[name] is not None:  # null means waiting until the subject does not exist
                text(condition[name], name)
        elif name == "idle":
            if not isinstance(condition[name], bool):
                raise invalid_field(name, "true or false")
        elif name == "owns":
            owns = condition[name]
            if not isinstance(owns, list) or not all(isinstance(each, str) for each in owns):
                raise invalid_field(name, "a list of partitions such as orders-0, or of tasks such as 0_2")
        elif name != kind:
            whole_number(condition[name], name)
    return kind


def _transaction(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    return transaction_row(cluster.running.broker, str(condition["transaction"]))


def _group(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    return group_row(cluster.running.broker, str(condition["group"]))


def _topic(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    return partition_row(cluster, str(condition["topic"]), whole_number(condition.get("partition", 0), "partition"))


def _fault(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    rule = cluster.faults.rules.by_name.get(str(condition["fault"]))
    if rule is None:
        raise unknown_field("fault", str(condition["fault"]), cluster.faults.rules.by_name)
    found: Facts = {"fault": rule.name, "hits": rule.hits, "matched": rule.matched}
    return {**found, "unmade_because": rule.edit_failure} if rule.failed_edits else found


def _hold(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    return {"hold": condition["hold"], "waiting": cluster.faults.rules.holds.counts().get(str(condition["hold"]), 0)}


def _member(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    return member(cluster.running.broker, str(condition["group"]), str(condition["member"]))


def _share_record(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    index, offset = (
        whole_number(condition.get("partition", 0), "partition"),
        whole_number(condition["offset"], "offset"),
    )
    return share_record(cluster.running.broker, str(condition["share_group"]), str(condition["topic"]), index, offset)


def _client(cluster: Cluster, condition: Mapping[str, object]) -> Facts:
    return client(cluster, str(condition["client"]))


OBSERVATIONS: Mapping[str, Callable[[Cluster, Mapping[str, object]], Facts]] = {
    "transaction": _transaction,
    "group": _group,
    "topic": _topic,
    "fault": _fault,
    "hold": _hold,
    "member": _member,
    "share_group": _share_record,
    "client": _client,
}
