"""Measures each array of each supported API with very many entries: the CPU time per entry, and another client's waits.

The cost per entry must not grow with the number of entries; otherwise a request with N entries would take time
proportional to N². The CPU time includes all the broker's threads. Unlike waits, it hardly depends on other load on the
machine.

    .venv/bin/python -m bench.long_arrays --only METADATA
    .venv/bin/python -m bench.long_arrays --sizes 10000 --kinds unknown --judge     a part of make hostile ARGS=--quick
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.bystander import PATIENCE_S, Bystander, NoAnswer, with_known_topic
from bench.subjects import PURE, Subject
from odradek.protocol.frames import request_bytes
from tests.support.long_requests import KINDS, LongArray, long_arrays, long_request
from tests.support.wire import ClosedByBroker, Wire

FEW: Final = 2_000
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024  # the default of socket.request.max.bytes
# highest accepted growth of the CPU time per entry from one size to the next; each size is five or ten times the
# previous
MAX_GROWTH: Final = 4.0
NOTHING_S: Final = 0.1  # CPU times below this value are too short to compare
BY_THREADS_S: Final = 2e-6  # CPU seconds allowed per entry of a long request for decoding it in worker threads
TRIES: Final = 3  # number of measurements that must agree before growth is reported
MAX_WAIT_S: Final = 0.25


@dataclass(slots=True)
class ArrayCost:
    """The cost of one array: the CPU seconds, keyed by kind and number of entries, and the other client's longest wait
    in the broker's CPU time (`worst_s`) and in elapsed time (`wall_s`)."""

    array: LongArray
    cpu: dict[str, dict[int, float]] = field(default_factory=dict)
    worst_s: float = 0.0
    wall_s: float = 0.0

    def grows_too_fast(self) -> list[str]:
        return [
            f"{self.array}, {kind}: {self.of_each(kind, few):.1f} µs for each of {few:,} entries, "
            f"{self.of_each(kind, many):.1f} for each of {many:,}"
            for kind, cpu in self.cpu.items()
            for few, many in zip(list(cpu)[:-1], list(cpu)[1:], strict=True)
            if is_too_fast(few, cpu[few], many, cpu[many])
        ]

    def of_each(self, kind: str, entries: int) -> float:
        """Returns the CPU time per entry in µs."""
        return self.cpu[kind][entries] / entries * 1e6

    def __str__(self) -> str:
        sizes = sorted({entries for cpu in self.cpu.values() for entries in cpu})
        cells = [max(self.of_each(kind, n) for kind, cpu in self.cpu.items() if n in cpu) for n in sizes]
        of_each = " · ".join(f"{cell:.1f}" for cell in cells)
        return f"| {self.array} | {of_each} | {self.worst_s * 1e3:.0f} · {self.wall_s * 1e3:.0f} |"


def is_too_fast(few: int, few_s: float, many: int, many_s: float) -> bool:
    return many_s > NOTHING_S and many_s / many > MAX_GROWTH * (few_s / few + BY_THREADS_S)


def costs(
    subject: Subject, bystander: Bystander, sizes: Sequence[int], kinds: Sequence[str], only: str
) -> Iterator[ArrayCost]:
    """Measures the arrays whose names contain `only`. Raises NoAnswer if the other client does not get a response."""
    own_s = seconds_of_one(subject, bystander)
    for array in long_arrays():
        if only not in str(array):
            continue
        cost = ArrayCost(array)
        for kind in kinds:
            for entries in sizes:
                measure(subject, bystander, cost, kind, entries, own_s)
        yield cost


def seconds_of_one(subject: Subject, bystander: Bystander) -> float:
    """Returns the broker's CPU time for one response to the other client."""
    count, before_s = bystander.count, subject.cpu_seconds()
    time.sleep(1.0)
    return (subject.cpu_seconds() - before_s) / max(1, bystander.count - count)


def measure(subject: Subject, bystander: Bystander, cost: ArrayCost, kind: str, entries: int, own_s: float) -> None:
    frame = request_bytes(long_request(cost.array, entries, kind), cost.array.version, 1, "hostile")
    if len(frame) > MAX_FRAME_BYTES:
        return
    of_kind = cost.cpu.setdefault(kind, {})
    fewer = max((n for n in of_kind), default=None)
    best_s = worst_s = float("inf")
    for _ in range(TRIES):
        count, before_s = bystander.count, subject.cpu_seconds()
        send(subject, frame, cost.array, entries)
        took_s = subject.cpu_seconds() - before_s - own_s * (bystander.count - count)
        waits = bystander.since(count)
        cost.wall_s = max(cost.wall_s, waits.wall[-1])
        worst_s = min(worst_s, waits.cpu[-1])
        best_s = min(best_s, max(took_s, 1e-6))
        grows = fewer is not None and is_too_fast(fewer, of_kind[fewer], entries, best_s)
        if not grows and worst_s <= MAX_WAIT_S:
            break
    of_kind[entries] = best_s
    cost.worst_s = max(cost.worst_s, worst_s)


def send(subject: Subject, frame: bytes, array: LongArray, entries: int) -> None:
    try:
        with Wire(subject.bootstrap, timeout_s=PATIENCE_S) as wire, suppress(ClosedByBroker):
            wire.send_bytes(frame)
            wire.receive_bytes()
    except TimeoutError as error:
        raise NoAnswer(f"{array}: no answer to {entries:,} entries") from error


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.long_arrays", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="measure only arrays whose name contains these words"
    )
    parser.add_argument(
        "--sizes", default="2000,20000,100000", metavar="NUMBERS", help="sizes to measure, in entries, in this order"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="NAMES", help="kinds of entries to measure")
    parser.add_argument(
        "--judge", action="store_true", help="treat long waits as failures too, not only costs that grow"
    )
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.sizes.split(",")]
    failures = []
    print(f"| array | µs of CPU for each of {' · '.join(map(str, sizes))} | longest wait in ms: CPU · in all |")
    print("|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as work,
        with_known_topic(PURE, Path(work)) as subject,
        Bystander(subject) as bystander,
    ):
        for cost in costs(subject, bystander, sizes, options.kinds.split(","), options.only):
            print(cost, flush=True)
            failures += cost.grows_too_fast()
            if options.judge and cost.worst_s > MAX_WAIT_S:
                failures.append(f"{cost.array}: another client waits for {cost.worst_s * 1e3:.0f} ms of CPU")
    for each in failures:
        print(each, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
