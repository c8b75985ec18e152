"""A workload run once with one release, against a fresh broker, and the verdicts on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from odradek.protocol.recording import Recording, RecordingEntry
from odradek.testing.judge.judging import judge
from odradek.testing.judge.verdicts import BROKEN, KEPT, Software, verdicts
from odradek.testing.sync import Cluster, Odradek, Process
from tests.judge_history.installing import Installed

CLIENT_ID = "judged"  # of every workload, so that clients which prepare topics are told apart
TIMEOUT_S = 60
Prepare: TypeAlias = Callable[[Cluster], None]


def run(release: Installed, prepare: Prepare, recording: Path, script: Sequence[str] = ()) -> dict[str, set[str]]:
    """Returns the rules that the workload's clients broke, and those that they kept, by verdict.

    That the workload fails is no error here: some bugs end the client. script: what a driver reads.
    """
    found = software(release, prepare, recording, script=script)
    broken = {each.rule.id for one in found for each in one.of(BROKEN)}
    return {BROKEN: broken, KEPT: {each.rule.id for one in found for each in one.of(KEPT)} - broken}


def software(
    release: Installed,
    prepare: Prepare,
    recording: Path,
    timeout_s: float = TIMEOUT_S,
    *,
    may_hang: bool = False,
    script: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> list[Software]:
    """Returns the verdicts on the workload's clients. may_hang: one that does is killed. settings: of the broker.

    Raises TimeoutExpired.
    """
    process = Process(settings, recording)
    try:
        kafka = Odradek("127.0.0.1", process.ready["http_port"]).default
        prepare(kafka)
        environment = {**os.environ, **release.environment, "ODRADEK_BOOTSTRAP": kafka.bootstrap}
        log = recording.with_suffix(".log")
        with log.open("wb") as out, suppress(*(subprocess.TimeoutExpired,) if may_hang else ()):
            told = "".join(f"{line}\n" for line in script).encode()
            subprocess.run(
                release.words, env=environment, input=told, stdout=out, stderr=out, timeout=timeout_s, check=False
            )
        kafka.check_faults()
    finally:
        process.stop()
    found = [each for each in recorded_verdicts(recording) if CLIENT_ID in each.client_ids]
    assert found, f"no client came: {log.read_text(errors='replace')[-2000:]}"
    return found


def recorded_verdicts(recording: Path) -> list[Software]:
    def entries() -> Iterator[RecordingEntry]:
        with recording.open("rb") as file:
            yield from Recording(file.read).entries()

    return verdicts(judge(entries).clients())
