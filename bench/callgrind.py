"""Counts a broker's instructions with callgrind. The figures are repeatable, regardless of other work on the
machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.broker_process import BrokerProcess

COUNTED_REQUESTS = 300


class CountedBroker(BrokerProcess):
    """A broker under callgrind, which counts its instructions on request."""

    @property
    def counts(self) -> Path:
        return self.data_dir.with_name(f"callgrind-{self.data_dir.name}")

    def command(self, ready_file: Path) -> list[str]:
        tool = ["valgrind", "--tool=callgrind", "--quiet", "--instr-atstart=no"]
        return [*tool, f"--callgrind-out-file={self.counts}", *super().command(ready_file)]

    def run_control(self, *words: str) -> None:
        subprocess.run(["callgrind_control", *words, str(self.pid)], check=True, capture_output=True)


def instructions(broker: BrokerProcess, turn: Callable[[], int], requests: int = COUNTED_REQUESTS) -> float:
    """Returns the mean number of instructions per operation.

    turn      performs some operations and returns their number
    requests  minimum number of operations
    """
    assert isinstance(broker, CountedBroker)
    found = f"{broker.counts.name}*"
    before = set(broker.counts.parent.glob(found))
    broker.run_control("--zero")
    broker.run_control("--instr=on")
    done = 0
    while done < requests:
        done += turn()
    broker.run_control("--instr=off")
    broker.run_control("--dump")
    dumps = set(broker.counts.parent.glob(found)) - before
    totals = re.findall(r"^(?:summary|totals): (\d+)", "".join(each.read_text() for each in dumps), re.MULTILINE)
    return max(int(total) for total in totals) / done
