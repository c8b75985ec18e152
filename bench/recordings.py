"""Measures what recordings and control cost a broker: `python -m bench recordings [--samples | [--control]
[--instructions] [--turns N]]`.

Three cases take turns: a broker without a recording, the same broker while `odradek judge --attach` listens, and
another broker with `--record FILE`. With `--control`, the cases are a broker without control, a broker with control,
and a broker with control that also keeps requests. The CPU time is that of the complete process, including all threads.
Each turn is compared with the adjacent turn of the first case. The program prints the median and its 95 % confidence
interval. The interval does not cover lasting differences between two processes, which are about 5 %.

The load comes from this process, first 16 requests at a time and then one at a time, and finally from librdkafka.

With `--instructions`, callgrind counts the instructions of 300 requests per turn. The count is less noisy than CPU
time, which cannot resolve 1 %.

With `--samples`, perf takes 1,500 samples per second of CPU. The program prints the share of samples in which a broker
with an attached judge is working on its recording. Sampling needs the compiled variant. The samples do not include the
code that sends blocks twenty times per second.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from confluent_kafka import Consumer, Producer

from bench.callgrind import CountedBroker, instructions
from bench.guard.operations import Bursts, Operation, Turn, fetch_at_the_tail, heartbeat, produce
from bench.process_usage import cpu_seconds
from bench.topics import topic
from tests.support.broker_process import BrokerProcess

FIRST_TURNS = 1
RECORDS = 2_000
TURN_S = 0.2
# Seconds of load before a turn's measurement begins. By then, blocks are sent as fast as they are recorded.
LEAD_S = 0.06


def librdkafka(bootstrap: str, stack: ExitStack) -> Turn:
    """Returns a turn that sends records of 100 B from a producer to a group member, with the clients' default
    settings."""
    name = stack.enter_context(topic(bootstrap, 6))
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    stack.callback(consumer.close)
    consumer.subscribe([name])

    def turn() -> int:
        for number in range(RECORDS):
            producer.produce(name, b"v" * 100, partition=number % 6)
        producer.flush()
        read = 0
        while read < RECORDS:
            read += len(consumer.consume(RECORDS - read, 1))
        return RECORDS

    return turn


OPERATIONS = [
    Operation("Produce of 100 B", produce([0], 100, 12, acks=1)),
    Operation("Fetch of 100 B", fetch_at_the_tail(100, 12)),
    Operation("Heartbeat", heartbeat),
    Operation("Produce of 100 KiB", produce([0], 100 * 1024, 2, acks=1)),
    Operation("Fetch of 60 KiB", fetch_at_the_tail(60 * 1024, 4)),
    Operation("librdkafka, a record", librdkafka),
]
OF_CONTROL = [
    Operation("Produce of 1 KiB", produce([0], 1024, 12)),
    Operation("Fetch of 1 KiB", fetch_at_the_tail(1024, 12)),
    Operation("Heartbeat", heartbeat),
]
CONTROL, KEPT = {"odradek.control.enable": "true"}, {"odradek.control.requests.enable": "true"}
Z_95 = 1.96
SAMPLED_S = 5
SAMPLES_OF_A_SECOND = 1500
# Matches the names that mypyc gives to the recording functions.
AT_ITS_RECORDING = re.compile(
    r"CPy(Def|Py)_(recorder|recording|recording_writer|recording_cuts|recording_masks|"
    r"controlled_connection___ControlledConnection____tell$)"
)
Measure: TypeAlias = Callable[[BrokerProcess, Turn], float]


class RecordedBroker(BrokerProcess):
    """A broker that runs with --record FILE."""

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
        judge.stderr.readline()  # returns once the judge is attached
        try:
            yield
        finally:
            judge.kill()
            judge.wait()


def sample(name: str, broker: BrokerProcess, turn: Turn, samples: Path) -> None:
    """Prints the share of the broker's CPU time that recording takes. Raises OSError if perf is missing."""
    how = ["--event=cpu-clock", f"--freq={SAMPLES_OF_A_SECOND}", "--call-graph=dwarf,16384"]
    words = ["perf", "record", "--quiet", *how, f"--pid={broker.pid}", f"--output={samples}"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as perf:
        ends_s = time.monotonic() + SAMPLED_S
        while time.monotonic() < ends_s:
            turn()
        perf.terminate()
    script = ["perf", "script", f"--input={samples}", "--fields=ip,sym", "--max-stack=60"]
    output = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    stacks = [stack.split() for stack in output.split("\n\n") if stack.strip()]
    if not stacks:
        raise SystemExit("perf took no samples. Check kernel.perf_event_paranoid")
    found = sum(any(map(AT_ITS_RECORDING.match, stack)) for stack in stacks)
    print(f"{name:32} {found / len(stacks):6.1%} of {len(stacks)} samples", flush=True)


def sample_all(work: Path) -> None:
    if os.environ.get("ODRADEK_VARIANT") != "compiled":
        raise SystemExit("perf only sees the functions of the compiled variant. Set ODRADEK_VARIANT=compiled")
    broker = BrokerProcess(work / "data", CONTROL)
    with broker, attached(broker), ExitStack() as opened:
        for operation in OPERATIONS:
            for name, turns in ways(operation.name, [operation.begin(broker.bootstrap, opened)]):
                sample(name, broker, turns[0], work / "samples")


def cpu_us(broker: BrokerProcess, turn: Turn) -> float:
    """Returns the broker's CPU time per request in µs under load."""
    assert broker.pid is not None
    ends_s = time.monotonic() + LEAD_S
    while time.monotonic() < ends_s:
        turn()
    spent, done, ends_s = cpu_seconds(broker.pid), 0, time.monotonic() + TURN_S
    while time.monotonic() < ends_s:
        done += turn()
    return (cpu_seconds(broker.pid) - spent) / done * 1e6


def ways(name: str, turns: Sequence[Turn]) -> Iterator[tuple[str, Sequence[Turn]]]:
    """Yields a row's name and turns, first as given, and then with one request at a time if the turns send bursts."""
    yield name, turns
    singly = [turn.one_by_one for turn in turns if isinstance(turn, Bursts)]
    if singly:
        yield f"{name}, one by one", singly


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median and its 95 % confidence interval, which is computed from order statistics."""
    ordered = sorted(values)
    first = max(0, math.floor((len(ordered) - Z_95 * math.sqrt(len(ordered))) / 2))
    return statistics.median(ordered), ordered[first], ordered[-1 - first]


@dataclass(frozen=True, slots=True)
class Side:
    """One case of the comparison. The context manager returned by `watched` is entered for each turn."""

    name: str
    broker: BrokerProcess
    watched: Callable[[BrokerProcess], AbstractContextManager[object]] = nullcontext


def compare(name: str, sides: Sequence[Side], turns: Sequence[Turn], count: int, measure: Measure) -> None:
    costs: list[list[float]] = [[] for _ in sides]
    rows = list(zip(costs, sides, turns, strict=True))
    for number in range(FIRST_TURNS + count):
        for cost, side, turn in rows if number % 2 else reversed(rows):
            with side.watched(side.broker):
                took = measure(side.broker, turn)
            if number >= FIRST_TURNS:
                cost.append(took)
    alone, *others = costs
    differences = ""
    for side, each in zip(sides[1:], others, strict=True):
        middle, low, high = interval([(one / base - 1) * 100 for one, base in zip(each, alone, strict=True)])
        differences += f", {side.name} {middle:+6.1f} % ({low:+.1f} to {high:+.1f})"
    unit = "µs" if measure is cpu_us else "instructions"
    print(f"{name:32} {statistics.median(alone):9.1f} {unit}{differences}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--control", action="store_true")
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with callgrind instead of measuring CPU time"
    )
    parser.add_argument("--samples", action="store_true", help="let perf sample a compiled broker with a judge")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder, ExitStack() as stack:
        work = Path(folder)
        if options.samples:
            sample_all(work)
            return
        made = CountedBroker if options.instructions else BrokerProcess
        measure = instructions if options.instructions else cpu_us
        if options.control:
            sides = [
                Side("without control", made(work / "off" / "data")),
                Side("control", made(work / "on" / "data", CONTROL)),
                Side("requests kept", made(work / "kept" / "data", CONTROL | KEPT)),
            ]
        else:
            broker = made(work / "alone" / "data", CONTROL)
            sides = [Side("alone", broker), Side("judge attached", broker, attached)]
            if not options.instructions:
                sides.append(Side("--record", RecordedBroker(work / "recorded" / "data", CONTROL)))
        for each in {id(side.broker): side.broker for side in sides}.values():
            stack.enter_context(each)
        for operation in OF_CONTROL if options.control else OPERATIONS:
            with ExitStack() as opened:
                begun = {id(side.broker): operation.begin(side.broker.bootstrap, opened) for side in sides}
                for name, turns in ways(operation.name, [begun[id(side.broker)] for side in sides]):
                    compare(name, sides, turns, options.turns, measure)


if __name__ == "__main__":
    main()
