"""Tests that a killed broker loses no acknowledged ACL change. After each restart, the ACLs are the result of some
prefix of the changes.

Only one change is in progress at a time, so after each kill the ACLs are in one of two states: with the change or
without it. There are ROUNDS kills, at most 10. SEED repeats a run's choices (not its interleavings).
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.wire import ClosedByBroker, Wire

ROUNDS = min(10, int(os.environ.get("ROUNDS", "10")))
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
SETTINGS: dict[str, object] = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
TOPICS = [f"topic-{number}" for number in range(6)]
TOPIC, LITERAL, READ, DENY, ALLOW, ANY, VERSION = 2, 3, 3, 2, 3, 1, 3
MAX_ROUND_S = 0.4
MAX_ROUNDS = 100  # A kill may come before the first change is acknowledged.

Acl = tuple[str, int]  # topic, permission
State = frozenset[Acl]


class Changes(threading.Thread):
    """Adds and removes ACLs, several per request. The last item of `states` is the last acknowledged state."""

    def __init__(self, broker: Broker, rng: random.Random, state: State) -> None:
        super().__init__(name="changes", daemon=True)
        self.acknowledged = state
        self.under_way: State | None = None
        self._wire = Wire(broker.bootstrap)
        self._rng = rng
        self.count = 0

    def run(self) -> None:
        try:
            while True:
                self._change()
                self.count += 1
        except (ClosedByBroker, OSError):
            return

    def _change(self) -> None:
        picked = frozenset((topic, self._rng.choice((DENY, ALLOW))) for topic in self._rng.sample(TOPICS, 3))
        is_added = self._rng.random() < 0.5
        self.under_way = self.acknowledged | picked if is_added else self.acknowledged - picked
        if is_added:
            created = self._wire.ask(
                CreateAclsRequest(creations=list(map(creation, picked))), VERSION, CreateAclsResponse
            )
            assert {result.error_code for result in created.results} == {0}
        else:
            removed = self._wire.ask(DeleteAclsRequest(filters=list(map(exactly, picked))), VERSION, DeleteAclsResponse)
            assert {result.error_code for result in removed.filter_results} == {0}
        self.acknowledged, self.under_way = self.under_way, None


def creation(acl: Acl) -> AclCreation:
    topic, permission = acl
    return AclCreation(
        resource_type=TOPIC,
        resource_name=topic,
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=permission,
    )


def exactly(acl: Acl) -> DeleteAclsFilter:
    topic, permission = acl
    return DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=permission,
    )


def described(broker: Broker) -> State:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    with Wire(broker.bootstrap) as wire:
        found = wire.ask(request, VERSION, DescribeAclsResponse)
    listed = [(each.resource_name, acl.permission_type) for each in found.resources for acl in each.acls]
    assert len(listed) == len(set(listed)), "an ACL is there twice"
    return frozenset(listed)


def test_acls_are_those_of_a_prefix_of_the_changes_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    state: State = frozenset()
    changed = 0
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        number = 0
        while number < ROUNDS or changed == 0:
            changes = Changes(broker, rng, state)
            changes.start()
            changes.join(rng.random() * MAX_ROUND_S)
            broker.kill9()
            changes.join()
            broker.start()
            state = described(broker)
            allowed = [each for each in (changes.acknowledged, changes.under_way) if each is not None]
            assert state in allowed, f"SEED={SEED}, round {number}"
            changed += changes.count
            number += 1
            assert number < MAX_ROUNDS, "nothing was ever changed"
