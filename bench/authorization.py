"""Measures the CPU time that authorization takes, in µs: `python -m bench.authorization`.

The program prints how long one authorization decision takes, and how long a 1 KiB Produce request takes from frame to
response. It measures the request without an authorizer and with one that has 1,000 ACLs.

`--count N [--authorizer]` only sends N Produce requests, so that `valgrind --tool=callgrind` can count instructions. To
exclude the start-up cost, subtract the counts for two values of N.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.broker.security.acl.acls import Acl, Acls
from odradek.broker.security.acl.authorizer import StandardAuthorizer
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.records import NewRecord, build_batch
from tests.support.in_process_broker import InProcessBroker
from tests.support.requests import produce_request

ROUNDS, DECISIONS, REQUESTS = 15, 20_000, 1_000
ACLS = 1_000
ALICE, HERE, VERSION = "User:alice", "127.0.0.1", 12
QUESTION = (ALICE, HERE, Operation.WRITE, ResourceType.TOPIC, "topic-7")


def fill(acls: Acls) -> None:
    for number in range(ACLS):
        name = f"topic-{number}"
        acl = Acl(ResourceType.TOPIC, name, PatternType.LITERAL, ALICE, "*", Operation.WRITE, Permission.ALLOW)
        acls.add(number.to_bytes(16), acl)


def best_us(action: Callable[[], object], count: int) -> float:
    """Returns the CPU time per call in µs, from the fastest round. Disturbances only add time, so the minimum is the
    most accurate figure."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(count):
            action()
        best = min(best, time.process_time() - started)
    return best / count * 1e6


class ProduceRequests:
    """A Produce request for one topic that can be sent repeatedly."""

    def __init__(self, in_process: InProcessBroker) -> None:
        topic = CreatableTopic(name="topic-7", num_partitions=1, replication_factor=1)
        in_process.ask(in_process.connection("User:admin"), CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        fill(in_process.broker.metadata.image.acls)
        records = build_batch([NewRecord(None, bytes(1024), int(time.time() * 1000))])
        request = produce_request("topic-7", records, acks=1)
        self._frame = bytes(request_bytes(request, VERSION, 1, "bench"))[4:]
        self._requests = in_process
        self._connection = in_process.connection(ALICE)

    async def once(self) -> None:
        reply = self._requests.dispatcher.start(memoryview(self._frame), self._connection)
        assert not isinstance(reply, list), "the request did not take the fast path"
        while not reply.is_done:
            await asyncio.sleep(0)
        reply.chunks()

    async def times(self, count: int) -> None:
        for _ in range(count):
            await self.once()


def broker(folder: str, *, has_authorizer: bool) -> InProcessBroker:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"} if has_authorizer else {}
    return InProcessBroker(Path(folder) / "data", settings)


def produce_us(*, has_authorizer: bool) -> float:
    with tempfile.TemporaryDirectory() as folder, broker(folder, has_authorizer=has_authorizer) as in_process:
        producing = ProduceRequests(in_process)
        return best_us(lambda: in_process.loop.run_until_complete(producing.times(REQUESTS)), 1) / REQUESTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int)
    parser.add_argument("--authorizer", action="store_true")
    options = parser.parse_args()
    if options.count is not None:
        with tempfile.TemporaryDirectory() as folder, broker(folder, has_authorizer=options.authorizer) as in_process:
            in_process.loop.run_until_complete(ProduceRequests(in_process).times(options.count))
        return
    acls = Acls()
    fill(acls)
    authorizer = StandardAuthorizer(acls, frozenset(), allows_everyone=False)
    kept = best_us(lambda: authorizer.decide(*QUESTION), DECISIONS)

    def anew() -> None:
        acls.changes += 1
        authorizer.decide(*QUESTION)

    print(f"decision: cached {kept:.2f} µs; after a change {best_us(anew, DECISIONS):.2f} µs")
    without, with_one = produce_us(has_authorizer=False), produce_us(has_authorizer=True)
    print(f"produce {without:.1f} µs without an authorizer, {with_one:.1f} µs with one")


if __name__ == "__main__":
    main()
