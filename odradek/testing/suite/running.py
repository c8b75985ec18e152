"""Runs scenarios with one driver. Each scenario runs on its own cluster, whose traffic is recorded and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Final

from odradek.control_calls.table import BASE, RECORDING
from odradek.protocol.recording import Recording, RecordingEntry
from odradek.testing.judge.judging import judge
from odradek.testing.judge.scene import Client, Finding, Tally
from odradek.testing.suite.driver import ApplicationFailed, DrivenClient, Unimplemented
from odradek.testing.suite.scenarios.scenario import Scenario
from odradek.testing.suite.stage import CLIENT_ID, ScenarioCluster
from odradek.testing.sync import Cluster, Odradek, Process, Unmet

READ_BYTES: Final = 1 << 20
START_TIMEOUT_S: Final = 10.0
NO_SUCH_COMMAND: Final = "the driver does not support "


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one scenario. `broken` explains how the client broke the rule, and is None if the client kept it.
    `skipped` explains why the scenario decided nothing, and is None if it decided the rule."""

    scenario: Scenario
    broken: str | None = None
    skipped: str | None = None

    def __str__(self) -> str:
        fine = "kept" if self.scenario.decides else "played; the traffic decides"
        words = f"not exercised: {self.skipped}" if self.skipped else f"BROKEN: {self.broken}" if self.broken else fine
        return f"{self.scenario.rule:7} {self.scenario.name}: {words}"


def run(
    command: Sequence[str], scenarios: Iterable[Scenario], folder: Path, on_outcome: Callable[[Outcome], None]
) -> Iterator[list[Client]]:
    """Runs scenarios and yields the driver's clients for each of them. The clients' tallies combine the verdicts on the
    traffic with the result that the application received.

    folder      folder for the recordings and the drivers' standard error
    on_outcome  called with each scenario's outcome

    Raises OSError if the command does not start.
    """
    process = Process({})
    try:
        odradek = Odradek("127.0.0.1", process.ready["http_port"])
        for scenario in scenarios:
            recording = folder / f"{scenario.rule}.recording"
            outcome = _play(command, scenario, odradek, recording)
            found = [each for each in _judge(recording) if each.client_ids != {CLIENT_ID}]
            if not found and outcome.skipped is None:
                outcome = Outcome(
                    scenario, skipped=f"no client connected; {outcome.broken or 'the driver reported nothing'}"
                )
            on_outcome(outcome)
            if outcome.skipped is None and (scenario.decides or outcome.broken is not None):
                tally = found[0].tallies.setdefault(scenario.rule, Tally())
                finding = None
                if outcome.broken is not None:
                    finding = Finding(f"{scenario.name}: {outcome.broken}", [])
                tally.add(Tally(int(finding is None), int(finding is not None), finding))
            yield found
    finally:
        process.stop()


def _play(command: Sequence[str], scenario: Scenario, odradek: Odradek, recording: Path) -> Outcome:
    kafka = odradek.cluster(nodes=scenario.nodes, settings=scenario.settings)
    reader = _Reader(odradek, kafka, recording)
    with recording.with_suffix(".log").open("wb") as log:
        stage = ScenarioCluster(kafka, lambda environment, out: DrivenClient(command, environment, out), log)
        broken = skipped = None
        try:
            broken = scenario.play(stage)
        except Unimplemented as missing:
            skipped = f"{NO_SUCH_COMMAND}{missing}"
        except ApplicationFailed as failed:
            broken = str(failed)
        except Unmet as unmet:
            skipped = str(unmet)
        finally:
            for driver in stage.drivers:
                driver.end()
        unused = [each for each in kafka.faults() if not each["hits"] and each.get("unused") != "ok"]
        if unused and skipped is None:
            skipped, broken = "the prepared situation never occurred", None
        kafka.delete()
        reader.join()
    return Outcome(scenario, broken, skipped)


class _Reader:
    """A thread that writes a cluster's recording to a file, until the cluster is deleted."""

    def __init__(self, odradek: Odradek, kafka: Cluster, path: Path) -> None:
        self._connection = HTTPConnection(odradek.host, odradek.port)
        self._path = path
        self._is_reading = Event()
        self._thread = Thread(target=self._read, args=(f"{BASE}/clusters/{kafka.id}{RECORDING.path}",), daemon=True)
        self._thread.start()
        self._is_reading.wait(START_TIMEOUT_S)

    def join(self) -> None:
        self._thread.join()

    def _read(self, path: str) -> None:
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        assert response.status == HTTPStatus.OK, response.read()
        self._is_reading.set()
        with self._path.open("wb") as file:
            while data := response.read1(READ_BYTES):
                file.write(data)
        self._connection.close()


def _judge(recording: Path) -> list[Client]:
    def entries() -> Iterator[RecordingEntry]:
        with recording.open("rb") as file:
            yield from Recording(file.read).entries()

    return judge(entries).clients()
