"""Runs a program with one release of a client, against a cluster in a rare state.

The program's last line is the application's result. The judge's verdicts are derived from the cluster's recording.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import TypeAlias

from odradek.protocol.recording import Recording, RecordingEntry
from odradek.testing.judge.judging import judge
from odradek.testing.judge.verdicts import BROKEN, KEPT, Software, verdicts
from odradek.testing.sync import Cluster, Odradek, Process
from tests.client_lab.installing import InstalledClient

HANGS = "hangs"
DEPARTURE_S = 5
POLL_INTERVAL_S = 0.05
PATIENCE_S = 45  # a program that runs longer than this is considered hung
TOUR_S = 60
PREPARING = {"state", "test"}  # client ids that prepare a state and are not judged
Setting: TypeAlias = Callable[[Cluster], None]


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program exited.

    seen    the program's last line or, if it printed nothing, a description of how it ended
    output  everything that the program printed
    """

    seen: str
    output: str


def run(
    release: InstalledClient,
    kafka: Cluster,
    words: Sequence[str] = (),
    *,
    meanwhile: Setting | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    script: Sequence[str] = (),
    patience_s: float = PATIENCE_S,
) -> ProgramEnd:
    """Runs the program once, until it exits or is killed because it hangs.

    words        arguments of the program, such as the name of the application
    meanwhile    changes the cluster while the program runs, for example by stopping a node
    environment  additional environment variables of the program
    script       the lines that a driver reads
    """
    failures: list[BaseException] = []

    def act() -> None:
        assert meanwhile is not None
        try:
            meanwhile(kafka)
        except BaseException as error:
            failures.append(error)

    whole = {**os.environ, **release.environment, **environment, "ODRADEK_BOOTSTRAP": kafka.bootstrap}
    pipe = subprocess.PIPE
    process = subprocess.Popen([*release.words, *words], env=whole, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    actor = Thread(target=act) if meanwhile is not None else None
    if actor is not None:
        actor.start()
    try:
        printed, complaint = process.communicate("".join(f"{line}\n" for line in script), timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, complaint = process.communicate()
        return ProgramEnd(HANGS, printed + complaint)
    finally:
        if actor is not None:
            actor.join()
    if failures:
        raise failures[0]
    output = printed + complaint
    if process.returncode < 0:
        return ProgramEnd(f"dies of {signal.Signals(-process.returncode).name}", output)
    lines = printed.strip().splitlines() or complaint.strip().splitlines() or [""]
    return ProgramEnd(lines[-1], output)


def wait_for_departure(kafka: Cluster) -> None:
    """Waits until the broker has noticed that the program's connections are closed, or DEPARTURE_S seconds have passed.

    The judge does not count a response as received if it may still have been in transit, for example when its
    connection was cut.
    """
    until_s = time.monotonic() + DEPARTURE_S
    while any(each["client_id"] not in PREPARING for each in kafka.connections()) and time.monotonic() < until_s:
        time.sleep(POLL_INTERVAL_S)


def judged_by_itself(
    release: InstalledClient,
    prepare: Setting,
    recording: Path,
    patience_s: float = TOUR_S,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> list[Software]:
    """Runs the program against a broker in a separate process and returns the verdicts on the program's clients.

    `prepare` prepares the broker before the program starts, and `settings` are broker settings. A program that hangs is
    killed, and the requests that it has sent are judged.
    """
    process = Process(settings, recording)
    try:
        kafka = Odradek("127.0.0.1", process.ready["http_port"]).default
        prepare(kafka)
        ended = run(release, kafka, patience_s=patience_s)
        wait_for_departure(kafka)
        kafka.check_faults()
    finally:
        process.stop()
    found = judged_clients(recording)
    assert found, f"no client connected: {ended.output[-2000:]}"
    return found


def judged_clients(recording: Path) -> list[Software]:
    """Returns the verdicts on the recorded clients, except for those that prepared the state."""
    return [each for each in recorded_verdicts(recording) if each.client_ids - PREPARING]


def recorded_verdicts(recording: Path) -> list[Software]:
    """Returns the verdicts on all recorded clients."""

    def entries() -> Iterator[RecordingEntry]:
        with recording.open("rb") as file:
            yield from Recording(file.read).entries()

    return verdicts(judge(entries).clients())


def rules_by_verdict(found: Sequence[Software]) -> dict[str, set[str]]:
    """Returns the rules that at least one of these clients broke, and the rules that were kept and never broken."""
    broken = {each.rule.id for one in found for each in one.of(BROKEN)}
    return {BROKEN: broken, KEPT: {each.rule.id for one in found for each in one.of(KEPT)} - broken}
