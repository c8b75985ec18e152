"""Runs one program with one release of a client, against a cluster that lies in a rare state.

What the program's application sees is its last line; what the judge finds is read from the recording of the cluster.
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
from tests.client_lab.installing import Installed

HANGS = "hangs"
DEPARTURE_S = 5
LOOK_AGAIN_S = 0.05
PATIENCE_S = 45  # A program that has not ended by then hangs.
TOUR_S = 60
PREPARING = {"state", "test"}  # the client ids of what brings a state about, which is not judged
Setting: TypeAlias = Callable[[Cluster], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: `seen` is its last line, or tells how it ended without one; `output` is all that it said."""

    seen: str
    output: str


def run(
    release: Installed,
    kafka: Cluster,
    words: Sequence[str] = (),
    *,
    meanwhile: Setting | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    script: Sequence[str] = (),
    patience_s: float = PATIENCE_S,
) -> Ended:
    """Runs the program once, until it ends or is killed because it hangs.

    words        its arguments, such as the name of the application
    meanwhile    what happens to the cluster while the program runs, such as the end of a node
    environment  of the program, besides that of this process
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
        told, complaint = process.communicate("".join(f"{line}\n" for line in script), timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        told, complaint = process.communicate()
        return Ended(HANGS, told + complaint)
    finally:
        if actor is not None:
            actor.join()
    if failures:
        raise failures[0]
    output = told + complaint
    if process.returncode < 0:
        return Ended(f"dies of {signal.Signals(-process.returncode).name}", output)
    lines = told.strip().splitlines() or complaint.strip().splitlines() or [""]
    return Ended(lines[-1], output)


def wait_for_departure(kafka: Cluster) -> None:
    """Waits until the broker has noticed that the program's connections are closed, if it notices in time.

    The judge does not count an answer as received while it may be on its way, as those of a cut connection may.
    """
    until_s = time.monotonic() + DEPARTURE_S
    while any(each["client_id"] not in PREPARING for each in kafka.connections()) and time.monotonic() < until_s:
        time.sleep(LOOK_AGAIN_S)


def judged_by_itself(
    release: Installed,
    prepare: Setting,
    recording: Path,
    patience_s: float = TOUR_S,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> list[Software]:
    """Runs the program against a broker in a process of its own, and returns the verdicts on the program's clients.

    A program that hangs is killed, and judged by what it has sent until then. settings: of the broker.
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
    assert found, f"no client came: {ended.output[-2000:]}"
    return found


def judged_clients(recording: Path) -> list[Software]:
    """Returns the verdicts on the clients of a recording, without those that have brought its state about."""
    return [each for each in recorded_verdicts(recording) if each.client_ids - PREPARING]


def recorded_verdicts(recording: Path) -> list[Software]:
    """Returns the verdicts on all clients of a recording."""

    def entries() -> Iterator[RecordingEntry]:
        with recording.open("rb") as file:
            yield from Recording(file.read).entries()

    return verdicts(judge(entries).clients())


def rules_by_verdict(found: Sequence[Software]) -> dict[str, set[str]]:
    """Returns the rules that any of these clients broke, and those that they only kept."""
    broken = {each.rule.id for one in found for each in one.of(BROKEN)}
    return {BROKEN: broken, KEPT: {each.rule.id for one in found for each in one.of(KEPT)} - broken}
