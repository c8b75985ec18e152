"""A storm of network faults between clients and a broker, and a watch over the owners of a group's partitions or tasks.

The broker has two listeners. Clients reach STORM through a proxy that delivers requests late, twice or not at all, and
that loses responses or delivers them twice. Tests use DIRECT, which the storm does not affect.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_describe_response import StreamsGroupDescribeResponse
from tests.support.broker_process import BrokerProcess
from tests.support.flaky_proxy import FlakyProxy
from tests.support.reserved_port import ReservedPort
from tests.support.wire import ClosedByBroker, Wire

SHARE_OF_EACH = 0.03  # share of the requests that each kind of fault affects
LATE_S = 0.5
POLL_INTERVAL_S = 0.01  # pause between two queries for the owners
# Clients could not start without these requests. All other requests may be late, repeated or lost.
CALM = {ApiKey.API_VERSIONS.value, ApiKey.METADATA.value}
# kinds of faults, each with the proxy's rule for it
RULES = {"lost": "loses", "dropped": "drops", "repeated": "repeats", "doubled": "doubles", "late": "holds"}

Owned = Mapping[str, Collection[str]]
"""The partitions or tasks that each member may work on."""


class Storm:
    """Selects at random the requests that the proxy disturbs."""

    def __init__(self, proxy: FlakyProxy, seed: int, ways: Collection[str] = tuple(RULES)) -> None:
        """Prepares a storm without starting it. `ways` are the kinds of faults to use, from RULES."""
        self._proxy = proxy
        self._ways = ways
        self._rng = random.Random(seed)
        proxy.late_by_s, proxy.hangs_up = LATE_S, True

    def begin(self) -> None:
        for way in self._ways:
            setattr(self._proxy, RULES[way], self._is_chosen)

    def counts(self) -> dict[str, int]:
        """Returns the number of requests that each kind of fault has affected."""
        proxy = self._proxy
        every = {
            "lost": len(proxy.lost),
            "dropped": len(proxy.dropped),
            "repeated": len(proxy.repeated),
            "doubled": len(proxy.doubled),
            "late": len(proxy.delivered_late),
        }
        return {way: every[way] for way in self._ways}

    def end(self) -> str:
        """Stops all faults and returns a description of those that occurred."""
        proxy, counts = self._proxy, self.counts()
        keys = (*proxy.lost, *proxy.dropped, *proxy.repeated, *proxy.doubled, *proxy.delivered_late)
        kinds = {ApiKey(key).name for key in keys}
        proxy.forget()
        assert min(counts.values()) > 0, f"this was no storm: {counts}"
        return f"{counts} of {', '.join(sorted(kinds))}"

    def _is_chosen(self, api_key: int, _version: int, _seen: int) -> bool:
        return api_key not in CALM and self._rng.random() < SHARE_OF_EACH


@contextmanager
def stormy(data_dir: Path, proxy: FlakyProxy, settings: Mapping[str, object]) -> Iterator[BrokerProcess]:
    """Yields a broker whose listener STORM is reachable only through the proxy. The broker keeps both ports when it
    restarts."""
    direct, storm = ReservedPort(), ReservedPort()
    listeners: dict[str, object] = {
        "listeners": f"DIRECT://127.0.0.1:{direct.number},STORM://127.0.0.1:{storm.number}",
        "advertised.listeners": f"DIRECT://127.0.0.1:{direct.number},STORM://{proxy.bootstrap}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,STORM:PLAINTEXT",
    }
    proxy.target = ("127.0.0.1", storm.number)
    with BrokerProcess(data_dir, {**settings, **listeners}, port=direct.number) as broker:
        assert isinstance(broker, BrokerProcess)
        yield broker


def partitions_of_members(wire: Wire, group_id: str) -> Owned | None:
    """Returns the partitions of a consumer group's members, or None while the broker does not serve the group."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    (found,) = wire.ask(request, 1, ConsumerGroupDescribeResponse).groups
    if found.error_code != ErrorCode.NONE.value:
        return None
    return {
        member.member_id: [
            f"{topic.topic_name}-{index}" for topic in member.assignment.topic_partitions for index in topic.partitions
        ]
        for member in found.members
    }


def tasks_of_members(wire: Wire, group_id: str) -> Owned | None:
    """Returns the active tasks of a streams group's members, or None while the broker does not serve the group."""
    request = StreamsGroupDescribeRequest(group_ids=[group_id])
    (found,) = wire.ask(request, 1, StreamsGroupDescribeResponse).groups
    if found.error_code != ErrorCode.NONE.value:
        return None
    return {
        member.member_id: [
            f"{tasks.subtopology_id}_{index}" for tasks in member.assignment.active_tasks for index in tasks.partitions
        ]
        for member in found.members
    }


class Owners(threading.Thread):
    """Repeatedly queries the broker for the owners of partitions or tasks. Records those that two members own
    simultaneously, and those without an owner.

    The broker may be killed in the meantime. While it is not running, and while the group has no members, no partition
    or task counts as unowned.
    """

    def __init__(self, bootstrap: str, group_id: str, owned: Callable[[Wire, str], Owned | None]) -> None:
        super().__init__(daemon=True)
        self.looks = 0
        self.most_members = 0
        self.shared: list[str] = []
        self.unowned_s: dict[str, float] = {}  # longest time without an owner
        self.last: Owned = {}
        self._servers, self._group_id, self._owned = bootstrap, group_id, owned
        self._seen_at: dict[str, float] = {}  # last time with an owner
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                with Wire(self._servers) as wire:
                    self._watch(wire)
            except (ClosedByBroker, OSError):  # The broker was killed.
                self._is_over.wait(POLL_INTERVAL_S)

    def _watch(self, wire: Wire) -> None:
        self._seen_at.clear()
        while not self._is_over.wait(POLL_INTERVAL_S):
            if owned := self._owned(wire, self._group_id):
                self._look(owned, time.monotonic())
            else:
                self._seen_at.clear()

    def _look(self, owned: Owned, now: float) -> None:
        owners: dict[str, str] = {}
        for member, names in owned.items():
            for name in names:
                other = owners.setdefault(name, member)
                if other != member:
                    self.shared.append(f"{name}: {other} and {member}")
        for name in owners:
            self._seen_at[name] = now
            self.unowned_s.setdefault(name, 0.0)
        for name, longest in self.unowned_s.items():
            self.unowned_s[name] = max(longest, now - self._seen_at.setdefault(name, now))
        self.looks += 1
        self.most_members = max(self.most_members, len(owned))
        self.last = owned

    def finish(self) -> None:
        self._is_over.set()
        self.join()
