"""Checks whether an operation costs more CPU than at the previous commit: `make bench ARGS=guard`, a step of CI.

    python -m bench.guard [--base COMMIT] [--margin 1.25] [--only WORDS] [--instructions]

Starts two brokers: one with the code of the base (the parent of HEAD, or the commit where HEAD branched off --base),
and one with the current code. Sends the same requests to both in short turns and compares the brokers' CPU time per
operation. Only the ratio counts, so the machine does not matter; bench/guard/comparison.py explains why the ratio is
stable. If there is no base to compare with, the guard reports this and succeeds.

The exit status is 1 if an operation costs more than the margin allows. If the extra cost is intended, explain it in the
commit message and run the guard with a larger --margin.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.callgrind import CountedBroker, instructions
from bench.guard.base import NoBase, find_base, unpack
from bench.guard.comparison import MARGIN, Attempt, Verdict, cost, verdict
from bench.guard.operations import OPERATIONS, Operation, RequestRefused, Turn
from bench.process_usage import cpu_seconds
from tests.support.broker_process import BrokerProcess
from tests.support.oracle import REPOSITORY

COUNTED_TURNS, COUNTED_OPERATIONS = 5, 100  # used with --instructions
TURNS, FIRST_TURNS = 100, 5  # turns per broker and operation; the first ones are a warm-up and do not count
# Both brokers run the Python sources, even if a compiled variant exists. Bytecode is cached, as with `make run`.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "ODRADEK_PURE": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONSAFEPATH": "",
    "PYTHONPATH": "",
}
WHERE = "import odradek; print(odradek.__file__)"


@dataclass(frozen=True, slots=True)
class Side:
    """A broker that runs the base's code or the current code."""

    broker: BrokerProcess

    @classmethod
    def of(cls, source: Path, work: Path, name: str, kind: type[BrokerProcess] = BrokerProcess) -> Side:
        """Returns a broker for the code in `source`. Raises RuntimeError if Python would import the code from another
        directory."""
        words = [sys.executable, "-c", WHERE]
        done = subprocess.run(
            words, cwd=source, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=True
        )
        if not Path(done.stdout.strip()).is_relative_to(source):
            raise RuntimeError(f"in {source} Python imports {done.stdout.strip()}")
        return cls(kind(work / name, environment=ENVIRONMENT, source=source))

    def cpu_us(self, turn: Turn) -> float:
        """Returns the broker's CPU time per operation in one turn, in µs."""
        assert self.broker.pid is not None
        before = cpu_seconds(self.broker.pid)
        operations = turn()
        return (cpu_seconds(self.broker.pid) - before) / operations * 1e6


def attempt(operation: Operation, before: Side, after: Side) -> Attempt:
    """Measures both brokers in turn, in alternating order.

    Raises NoBase if only `before` rejects the operation.
    """
    with ExitStack() as stack:
        new = operation.begin(after.broker.bootstrap, stack)
        try:
            old = operation.begin(before.broker.bootstrap, stack)
        except RequestRefused as reason:
            raise NoBase(f"not served before ({reason})") from None
        turns = [(before, old), (after, new)]
        costs: list[list[float]] = [[], []]
        for number in range(FIRST_TURNS + TURNS):
            for index in (0, 1) if number % 2 else (1, 0):
                side, turn = turns[index]
                spent_us = side.cpu_us(turn)
                if number >= FIRST_TURNS:
                    costs[index].append(spent_us)
    return Attempt(*costs)


def compare(operation: Operation, before: Side, after: Side, margin: float) -> Verdict:
    attempts: list[Attempt] = []
    found = Verdict.AGAIN
    print(f"{operation.name:32}", end="", flush=True)
    while found is Verdict.AGAIN:
        try:
            attempts.append(attempt(operation, before, after))
        except NoBase as reason:
            print(f" {reason}")
            return Verdict.AS_BEFORE
        last = attempts[-1]
        print(f" {cost(last.before):8.1f} µs → {cost(last.after):7.1f} µs  {last.ratio:5.2f} ×", end="", flush=True)
        found = verdict(attempts, margin)
    print("  SLOWER" if found is Verdict.SLOWER else "")
    return found


def run(source: Path, operations: Sequence[Operation], margin: float) -> list[Operation]:
    """Returns the operations that cost more with the current code than with the code in `source`."""
    with tempfile.TemporaryDirectory(prefix="odradek-guard-") as folder, ExitStack() as stack:
        before = Side.of(source, Path(folder), "before")
        after = Side.of(REPOSITORY, Path(folder), "after")
        try:
            stack.enter_context(before.broker)
        except RuntimeError as reason:
            raise NoBase(f"its broker does not start with the packages installed here: {reason}") from None
        stack.enter_context(after.broker)
        return [one for one in operations if compare(one, before, after, margin) is Verdict.SLOWER]


def count(source: Path, operations: Sequence[Operation]) -> None:
    """Prints each operation's number of instructions with the code in `source` and with the current code."""
    with tempfile.TemporaryDirectory(prefix="odradek-guard-") as folder, ExitStack() as stack:
        sides = [
            Side.of(root, Path(folder), name, CountedBroker)
            for root, name in ((source, "before"), (REPOSITORY, "after"))
        ]
        for side in sides:
            stack.enter_context(side.broker)
        for operation in operations:
            turns = [operation.begin(side.broker.bootstrap, stack) for side in sides]
            counts: list[list[float]] = [[], []]
            for number in range(COUNTED_TURNS + 1):
                for side, turn, found in zip(sides, turns, counts, strict=True):
                    counted = instructions(side.broker, turn, COUNTED_OPERATIONS)
                    if number:  # The first turn is a warm-up.
                        found.append(counted)
            before, after = map(statistics.median, counts)
            print(f"{operation.name:32} {before:10,.0f} → {after:10,.0f}  {after / before - 1:+6.1%}", flush=True)


def parse(environment: Mapping[str, str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--base",
        default=environment.get("BASE") or None,
        help="compare with the common ancestor of HEAD and this commit (also $BASE); HEAD compares uncommitted changes",
    )
    parser.add_argument("--margin", type=float, default=MARGIN, help="default: %(default)s times the CPU of the base")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="measure only operations whose name contains these words"
    )
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions with callgrind, which is slow, but repeatable on a busy machine; compare nothing",
    )
    return parser.parse_args()


def main() -> int:
    options = parse(os.environ)
    chosen = [one for one in OPERATIONS if options.only in one.name]
    try:
        base = find_base(options.base)
        measure = "instructions" if options.instructions else f"CPU (more than {options.margin:g} × fails)"
        print(f"{measure} per operation, {base.title} → the current code", flush=True)
        with tempfile.TemporaryDirectory(prefix="odradek-base-") as folder:
            if options.instructions:
                count(unpack(base, Path(folder).resolve()), chosen)
                return 0
            slower = run(unpack(base, Path(folder).resolve()), chosen, options.margin)
    except NoBase as reason:
        print(f"there is nothing to compare with: {reason}")
        return 0
    if slower:
        print(f"more than {options.margin:g} × the CPU of {base.title}: {', '.join(one.name for one in slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
