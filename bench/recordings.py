"""What a recording costs a broker: `python -m bench recordings [--turns N]`.

Brokers with control take turns: one that nobody watches, one to which `odradek judge --attach` listens, and one with
`--record FILE`. The CPU of the whole process counts, its threads included; medians of the turns are compared. The load
comes from this process, 16 requests at a time, or each after the answer to the last one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.guard.operations import Bursts, Operation, Turn, fetch_at_the_tail, heartbeat, produce
from bench.process_usage import cpu_seconds
from tests.support.broker_process import BrokerProcess

FIRST_TURNS = 1
TURN_S = 0.3  # many blocks of a recording are sent meanwhile
OPERATIONS = [
    Operation("Produce of 100 B", produce([0], 100, 12, acks=1)),
    Operation("Fetch of 100 B", fetch_at_the_tail(100, 12)),
    Operation("Heartbeat", heartbeat),
    Operation("Produce of 100 KiB", produce([0], 100 * 1024, 2, acks=1)),
    Operation("Fetch of 60 KiB", fetch_at_the_tail(60 * 1024, 4)),
]
NAMES = ("judge attached", "--record")


class RecordedBroker(BrokerProcess):
    """A broker with --record FILE."""

    def command(self, ready_file: Path) -> list[str]:
        return [*super().command(ready_file), "--record", str(self.data_dir.with_name("recording"))]


@contextmanager
def attached(broker: BrokerProcess) -> Iterator[None]:
    words = ["judge", "--attach", f"127.0.0.1:{broker.ready['http_port']}"]
    judge = subprocess.Popen(
        [sys.executable, "-m", "odradek", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert judge.stderr is not None
    with judge.stderr:
        judge.stderr.readline()  # it is attached
        try:
            yield
        finally:
            judge.kill()
            judge.wait()


def one_by_one(turn: Turn) -> Turn:
    assert isinstance(turn, Bursts)
    return turn.one_by_one


def compare(name: str, brokers: Sequence[BrokerProcess], turns: Sequence[Turn], count: int) -> None:
    costs: list[list[float]] = [[] for _ in brokers]
    for number in range(FIRST_TURNS + count):
        for side in range(len(brokers)) if number % 2 else reversed(range(len(brokers))):
            pid = brokers[side].pid
            assert pid is not None
            spent, done, ends_s = cpu_seconds(pid), 0, time.monotonic() + TURN_S
            while time.monotonic() < ends_s:
                done += turns[side]()
            if number >= FIRST_TURNS:
                costs[side].append((cpu_seconds(pid) - spent) / done * 1e6)
    alone, *watched = map(statistics.median, costs)
    told = "".join(f", {what} {(each / alone - 1) * 100:+6.1f} %" for what, each in zip(NAMES, watched, strict=True))
    print(f"{name:32} {alone:7.1f} µs{told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    options = parser.parse_args()
    settings = {"odradek.control.enable": "true"}
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder, ExitStack() as stack:
        work = Path(folder)
        brokers = [
            kind(work / name / "data", settings)
            for kind, name in ((BrokerProcess, "alone"), (BrokerProcess, "attached"), (RecordedBroker, "recorded"))
        ]
        for broker in brokers:
            stack.enter_context(broker)
        stack.enter_context(attached(brokers[1]))
        for operation in OPERATIONS:
            with ExitStack() as opened:
                turns = [operation.begin(broker.bootstrap, opened) for broker in brokers]
                compare(operation.name, brokers, turns, options.turns)
                singly = [one_by_one(turn) for turn in turns]
                compare(f"{operation.name}, one by one", brokers, singly, options.turns)


if __name__ == "__main__":
    main()
