"""Measures commands on a cluster with a very large number of objects: `python -m bench commands`.

One broker is given N topics, N partitions in one topic, N groups, N offsets in one group, N ACLs and N transactional
ids. Each command is then run against it. `first` is the time until the first output, and `wait` is another client's
longest wait.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.hostile import PATIENCE_S, peak_bytes, watch
from bench.process_usage import MIB, rss_bytes
from bench.transactional_ids import SETTINGS, fill
from odradek.client import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from odradek.client.administration.users import Acl, create_acls
from odradek.protocol.acls import Operation, Permission, ResourceType
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from tests.support.broker_process import BrokerProcess
from tests.support.wire import Wire

ITEMS = 100_000
LINE = b"x" * 99 + b"\n"
CHUNK = 1_000
SAMPLE_S = 0.02
OVERRIDES = SETTINGS | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": 4,
}
WIDE, LINES, GROUP = "wide", "lines", "of-all"


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    elapsed_s: float
    first_s: float
    rss_mib: float
    wait_ms: float


def commands(items: int) -> Iterator[tuple[str, Sequence[str], str | None]]:
    """Yields each command's name, arguments and standard input."""
    few = [f"g{number:06}" for number in range(items // 100)]
    made = [f"m{number:05}" for number in range(items // 10)]
    yield "produce, from a file", ("produce", "-t", LINES), "lines"
    yield "consume", ("consume", "-t", LINES, "-e"), None
    yield "topics list", ("topics", "list"), None
    yield "topics describe, all", ("topics", "describe"), None
    yield "topics describe, one topic with as many partitions", ("topics", "describe", WIDE), None
    yield "records offsets, all", ("records", "offsets"), None
    yield "records delete, as many partitions", ("records", "delete", "-t", WIDE, "--before-offset", "-1"), None
    yield "groups list", ("groups", "list"), None
    yield f"groups describe, {len(few):,} of them", ("groups", "describe", *few), None
    yield "groups describe, one group with as many offsets", ("groups", "describe", GROUP), None
    yield f"groups delete, {len(few):,} of them", ("groups", "delete", *few), None
    yield "acls list", ("acls", "list"), None
    yield "acls add", ("acls", "add", "--topic", "a", "--allow-principal", "User:a"), None
    yield "acls remove", ("acls", "remove", "--topic", "a", "--allow-principal", "User:a"), None
    yield "transactions list", ("transactions", "list"), None
    yield "transactions list --in-doubt", ("transactions", "list", "--in-doubt"), None
    yield "transactions find-hanging", ("transactions", "find-hanging", "--broker-id", "1"), None
    yield "configs describe", ("configs", "describe", "-t", WIDE), None
    yield "configs alter", ("configs", "alter", "-t", WIDE, "--add-config", "retention.ms=1000000"), None
    yield f"topics create, {len(made):,} of them", ("topics", "create", *made), None
    yield f"topics delete, {len(made):,} of them", ("topics", "delete", *made), None


async def fill_broker(bootstrap: str, items: int) -> None:
    async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_S * 1_000) as admin:
        chunks = [range(begin, min(begin + CHUNK, items)) for begin in range(0, items, CHUNK)]
        await admin.create_topics([NewTopic(LINES, partitions=1), NewTopic(WIDE, partitions=1)])
        for total in range(CHUNK, items + 1, CHUNK):
            await admin.create_partitions({WIDE: total})
        for names in chunks:
            await admin.create_topics([NewTopic(f"t{number:06}", partitions=1) for number in names])
        for names in chunks:
            acls = [
                Acl(ResourceType.TOPIC, f"t{each:06}", "User:u", Operation.READ, Permission.ALLOW) for each in names
            ]
            await create_acls(admin.requests, acls)
        for names in chunks:
            await admin.alter_group_offsets(GROUP, {TopicPartition(WIDE, each): OffsetAndMetadata(0) for each in names})


def fill_groups(bootstrap: str, items: int) -> None:
    with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
        for number in range(items):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
            topic = OffsetCommitRequestTopic(name=LINES, partitions=[partition])
            wire.ask(OffsetCommitRequest(group_id=f"g{number:06}", topics=[topic]), 8, OffsetCommitResponse)


@contextmanager
def watched(bootstrap: str) -> Iterator[list[float]]:
    """Runs another client during the `with` block and yields a list. After the block, the list contains the client's
    waits in ms."""
    fork = multiprocessing.get_context("fork")
    is_over, (heard, writer) = fork.Event(), fork.Pipe(duplex=False)
    watcher = fork.Process(target=watch, args=(bootstrap, is_over, writer))
    watcher.start()
    waits: list[float] = []
    try:
        yield waits
    finally:
        is_over.set()
        found = heard.recv() if heard.poll(PATIENCE_S) else "nothing was heard"
        watcher.join()
    if isinstance(found, str):
        raise RuntimeError(f"another client got no answer: {found}")
    waits += [each * 1_000 for each in found]


def cost(bootstrap: str, words: Sequence[str], stdin: Path) -> Cost:
    """Runs a command and returns its cost. Raises RuntimeError if the command fails."""
    with watched(bootstrap) as waits, open(stdin, "rb") as lines:
        begun = time.perf_counter()
        command = subprocess.Popen(
            [sys.executable, "-m", "odradek", *words, "-b", bootstrap],
            stdin=lines,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert command.stdout is not None
        output, first_s, peak = b"", None, 0
        with command.stdout as said:
            while True:
                peak = max(peak, peak_bytes(command.pid))
                if select.select([said], [], [], SAMPLE_S)[0]:
                    first_s = first_s or time.perf_counter() - begun
                    if not (more := os.read(said.fileno(), 1 << 16)):
                        break
                    output = more
        _, status, used = os.wait4(command.pid, 0)
        elapsed_s = time.perf_counter() - begun
    command.returncode = os.waitstatus_to_exitcode(status)
    if command.returncode:
        raise RuntimeError(output[-300:].decode(errors="replace").strip())
    return Cost(used.ru_utime + used.ru_stime, elapsed_s, first_s or elapsed_s, peak / MIB, max(waits))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench commands", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--items", type=int, default=ITEMS, metavar="N", help=f"number of items of each kind; default: {ITEMS:,}"
    )
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="measure only commands whose name contains these words"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        lines, nothing = Path(work, "lines"), Path(work, "nothing")
        lines.write_bytes(LINE * options.items)
        nothing.touch()
        with BrokerProcess(Path(work, "data"), OVERRIDES) as broker:
            assert broker.pid is not None
            asyncio.run(fill_broker(broker.bootstrap, options.items))
            fill_groups(broker.bootstrap, options.items)
            fill(broker.bootstrap, options.items)
            print(
                f"{options.items:,} items of each kind; the broker has {rss_bytes(broker.pid) / MIB:,.0f} MiB",
                flush=True,
            )
            print("| command | CPU | elapsed | first | memory | wait |\n|---|---|---|---|---|---|", flush=True)
            for name, words, stdin in commands(options.items):
                if options.only not in name:
                    continue
                try:
                    used = cost(broker.bootstrap, words, nothing if stdin is None else lines)
                except RuntimeError as error:
                    print(f"| {name} | failed: {error} |", flush=True)
                    continue
                print(
                    f"| {name} | {used.cpu_s:.1f} s | {used.elapsed_s:.1f} s | {used.first_s:.1f} s"
                    f" | {used.rss_mib:.0f} MiB | {used.wait_ms:.0f} ms |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
