"""Prints the text of docs/verdicts.md: `python -m tests.client_lab.verdicts_page > docs/verdicts.md`.

Runs a program of each client (a `Tour`: idempotent producer, transactions, groups) with each scene's faults, on a new
broker, and judges the recordings. Prints the evidence for each broken rule to standard error. If examined.toml does not
list one of the broken rules, the page is not printed. The clients' results in the complete suite are read from
played.toml (tests/client_lab/suite.py).
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odradek.testing.judge.reports import lines
from odradek.testing.judge.rules import RULES
from odradek.testing.judge.verdicts import RuleVerdict, Software
from odradek.testing.suite.scenarios import SCENARIOS
from odradek.testing.sync import Cluster
from tests.client_lab import states
from tests.client_lab.installing import PROGRAMS, REPOSITORY, InstalledClient, install, install_kafka_streams
from tests.client_lab.row import Conviction, Row, ScenarioConviction
from tests.client_lab.rows import ROWS
from tests.client_lab.running import judged_by_itself
from tests.client_lab.suite import SuiteResult, read_played
from tests.support.oracle import run_kafka

EXAMINED = Path(__file__).with_name("examined.toml")
TIMEOUT_S = 90
TOURS_AT_ONCE = 3  # number of concurrent tours, which spend most of their time waiting
PYTHON_HERE = InstalledClient([sys.executable], {"PYTHONPATH": str(REPOSITORY)})

Fault = Mapping[str, Any]


def fault(api: str, do: Mapping[str, Any], after: int = 0, times: int = 1, at: str = "received") -> Fault:
    return {"match": {"api": api}, "do": do, "after": after, "times": times, "at": at, "unused": "ok"}


def error(name: str) -> Mapping[str, Any]:
    return {"error": name}


SCENES: Mapping[str, tuple[Fault, ...]] = {
    "nothing unusual": (),
    "a leader that moves, lost answers to Produce and Fetch, a lost fetch session": (
        fault("Produce", error("NOT_LEADER_OR_FOLLOWER"), after=3),
        fault("Produce", {"disconnect": "fin"}, after=8, at="applied"),
        fault("Fetch", error("NOT_LEADER_OR_FOLLOWER"), after=2),
        fault("Fetch", error("FETCH_SESSION_ID_NOT_FOUND"), after=6),
    ),
    "UNKNOWN_PRODUCER_ID, then OUT_OF_ORDER_SEQUENCE_NUMBER, on Produce": (
        fault("Produce", error("UNKNOWN_PRODUCER_ID"), after=4),
        fault("Produce", error("OUT_OF_ORDER_SEQUENCE_NUMBER"), after=10),
    ),
    "a transaction coordinator that is busy, moves, and loses an answer": (
        fault("InitProducerId", error("COORDINATOR_LOAD_IN_PROGRESS"), after=1),
        fault("AddPartitionsToTxn", error("CONCURRENT_TRANSACTIONS")),
        fault("EndTxn", error("CONCURRENT_TRANSACTIONS"), times=2),
        fault("EndTxn", error("NOT_COORDINATOR"), after=3),
        fault("EndTxn", {"disconnect": "fin"}, after=5, at="applied"),
    ),
    "PRODUCER_FENCED on EndTxn": (fault("EndTxn", error("PRODUCER_FENCED"), after=1),),
    "a group that rebalances, a coordinator that loads, moves, and forgets the member": (
        fault("Heartbeat", error("REBALANCE_IN_PROGRESS"), after=1),
        fault("Heartbeat", error("NOT_COORDINATOR"), after=3),
        fault("Heartbeat", error("UNKNOWN_MEMBER_ID"), after=6),
        fault("OffsetCommit", error("COORDINATOR_LOAD_IN_PROGRESS")),
        fault("ConsumerGroupHeartbeat", error("FENCED_MEMBER_EPOCH"), after=1),
    ),
}


@dataclass(frozen=True, slots=True)
class Tour:
    """A program that uses one release of a client. `name` is the client's title on the page, including its version."""

    name: str
    package: str
    version: str
    program: str
    needs: tuple[str, ...] = ()

    def installed(self) -> InstalledClient:
        path = PROGRAMS / self.program
        if self.package == "kafka-streams":
            return InstalledClient(["java", "-cp", install_kafka_streams(self.version), str(path)], {})
        if self.program.endswith(".java"):
            jars = run_kafka("classpath", "--version", self.version).strip().splitlines()[-1]
            return InstalledClient(["java", "-cp", jars, str(path)], {})
        if not self.package:
            return InstalledClient([*PYTHON_HERE.words, str(path)], PYTHON_HERE.environment)
        return install(self.package, self.version, path, self.needs)


TOURS = (
    Tour("librdkafka (confluent-kafka 2.16.1)", "confluent-kafka", "2.16.1", "tour_confluent.py"),
    Tour("Java 4.4.0", "kafka-clients", "4.4.0", "Tour.java"),
    Tour("franz-go 1.22.3", "github.com/twmb/franz-go", "1.22.3", "tour_kgo.go"),
    Tour("kafka-python 3.0.12", "kafka-python", "3.0.12", "tour_kafka_python.py"),
    Tour("aiokafka 0.14.0", "aiokafka", "0.14.0", "tour_aiokafka.py"),
    Tour("KafkaJS 2.2.4", "kafkajs", "2.2.4", "tour_kafkajs.js"),
    Tour("@platformatic/kafka 2.12.1", "@platformatic/kafka", "2.12.1", "tour_platformatic.js", ("avsc",)),
    Tour("Sarama 1.46.3", "github.com/IBM/sarama", "1.46.3", "tour_sarama.go"),
    Tour("rskafka 0.6.0", "rskafka", "0.6.0", "tour_rskafka.rs", ("tokio+full",)),
    Tour("ours", "", "", "tour_own.py"),
)


@dataclass(slots=True)
class Cell:
    """The number of times that one client kept and broke one rule, over all scenes."""

    kept: int = 0
    broken: int = 0
    scenes: list[str] = field(default_factory=list)  # scenes in which the rule was broken

    def add(self, verdict: RuleVerdict, scene: str) -> None:
        self.kept += verdict.kept
        self.broken += verdict.broken
        if verdict.broken:
            self.scenes.append(scene)

    def __str__(self) -> str:
        return f"**{self.broken} of {self.kept + self.broken}**" if self.broken else str(self.kept or "")


Matrix = dict[str, dict[str, Cell]]  # cells by client and rule


@dataclass(frozen=True, slots=True)
class ExaminedBreak:
    """A break that somebody has examined.

    finding  what the exchanges show
    suite    the suite in which the break occurred; empty if it occurred in the tour
    """

    client: str
    rule: str
    finding: str
    suite: str = ""

    def row(self) -> str:
        rule, where = RULES[self.rule], f", {self.suite}" if self.suite else ""
        clause = f"[clause]({rule.clause.removeprefix('docs/')})"
        return f"| {self.client}{where} | {rule.id} {rule.text} | {clause} | {self.finding} |"


def judged(tour: Tour, folder: Path) -> Iterator[tuple[str, Software]]:
    """Runs the tour in each scene and yields the scene with the verdicts on each client."""
    release = tour.installed()
    for number, (scene, faults) in enumerate(SCENES.items()):

        def prepare(kafka: Cluster, faults: Sequence[Fault] = faults) -> None:
            states.orders(kafka)
            for each in faults:
                kafka.fault(each)

        recording = folder / f"{tour.program}-{number}"
        for found in judged_by_itself(release, prepare, recording, TIMEOUT_S):
            yield scene, found


def page(
    matrix: Matrix, exercised: int, examined: Sequence[ExaminedBreak], played: Sequence[SuiteResult], when: datetime
) -> Iterator[str]:
    """Yields the page's lines. `exercised` is the number of rules that were decided for at least one client."""
    decided = [rule for rule in RULES.values() if rule.needs is None]
    yield "# Verdicts\n"
    yield f"Generated by `python -m tests.client_lab.verdicts_page` on {when:%Y-%m-%d}.\n"
    yield "A short program for each client (idempotent producer, transactions, groups) ran in each of these scenes"
    yield f"against a fresh broker, and [`odradek judge`](judge.md) judged it: {exercised} of {len(decided)} rules were"
    yield "exercised. A number is the number of times that a rule was kept. **n of m** means that the rule was broken n"
    yield "times. An empty cell means that the rule was not exercised here, so nothing is known about the client.\n"
    for scene in SCENES:
        yield f"- {scene}"
    yield ""
    rows = [rule for rule in decided if any(rule.id in cells for cells in matrix.values())]
    yield f"| rule | | {' | '.join(matrix)} |"
    yield f"|---|---|{'---|' * len(matrix)}"
    for rule in rows:
        cells = " | ".join(str(cells.get(rule.id, "")) for cells in matrix.values())
        yield f"| {rule.id} | {rule.level.value} | {cells} |"
    yield from of_the_suite(played)
    yield "\n## Examined breaks\n"
    yield "| client | rule | clause | the exchanges show |\n|---|---|---|---|"
    in_suite = {(each.client, rule) for each in played for rule in each.broken}
    for each in examined:
        in_tour = each.client in matrix and matrix[each.client].get(each.rule, Cell()).broken
        if each.suite or in_tour or (each.client, each.rule) in in_suite:
            yield each.row()
    yield from old_bugs()


def of_the_suite(played: Sequence[SuiteResult]) -> Iterator[str]:
    """Yields the lines of a table with a row for each scenario, and for each other rule that was broken in any
    scenario."""
    *others, last_day = sorted({f"{each.on:%Y-%m-%d}" for each in played})
    days = f"{', '.join(others)} and {last_day}" if others else last_day
    yield "\n## The suite\n"
    yield f"All {len(SCENARIOS)} scenarios of `odradek judge --suite` were played with each of"
    yield "[these drivers](../examples/judge_drivers/README.md) by `python -m tests.client_lab.suite`, on"
    yield f"{days}. Whether a rule is kept or **broken** is decided by what the application"
    yield "saw and by the traffic in all scenarios. – means that the client or its driver lacks the feature. An empty"
    yield "cell means that the prepared situation never occurred.\n"
    yield f"| scenario | rule | {' | '.join(each.client for each in played)} |"
    yield f"|---|---|{'---|' * len(played)}"
    named = {each.rule: each.name for each in SCENARIOS}
    others = sorted({rule for each in played for rule in each.broken} - named.keys())
    for rule in [*named, *others]:
        ends = " | ".join(each.end_of(rule) for each in played)
        yield f"| {named.get(rule, 'traffic of other scenarios')} | {rule} | {ends} |"


def old_bugs() -> Iterator[str]:
    yield "\n## Old bugs\n"
    yield "| bug | package | broken by | not by | rule | the application meets |\n|---|---|---|---|---|---|"
    scenarios = {each.rule: each.name for each in SCENARIOS}
    for row in ROWS:
        for each in row.evidence:
            if isinstance(each, Conviction):
                yield _old_bug(row, each.rule, each.state.__name__)
            elif isinstance(each, ScenarioConviction):
                yield _old_bug(row, each.rule, scenarios[each.rule])


def _old_bug(row: Row, rule: str, meets: str) -> str:
    return f"| {row.bug} | {row.client.package} | {row.old} | {row.mended} | {rule} | {meets.replace('_', ' ')} |"


def unexamined(
    matrix: Matrix, examined: Sequence[ExaminedBreak], played: Sequence[SuiteResult] = ()
) -> list[tuple[str, str]]:
    known = {(each.client, each.rule) for each in examined}
    broken = [(client, rule) for client, cells in matrix.items() for rule, cell in cells.items() if cell.broken]
    broken += [(each.client, rule) for each in played for rule in each.broken]
    return [each for each in broken if each not in known]


def read_examined(path: Path = EXAMINED) -> list[ExaminedBreak]:
    return [ExaminedBreak(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["examined"]]


def main() -> int:
    examined = read_examined()
    only = sys.argv[1:]
    matrix: Matrix = {}
    proofs: dict[tuple[str, str], list[str]] = {}
    tours = [tour for tour in TOURS if not only or any(tour.name.startswith(each) for each in only)]
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder, ThreadPoolExecutor(TOURS_AT_ONCE) as threads:
        for tour, judgements in zip(
            tours, threads.map(lambda tour: list(judged(tour, Path(folder))), tours), strict=True
        ):
            cells = matrix.setdefault(tour.name, {})
            for scene, found in judgements:
                for rule_id, verdict in found.verdicts.items():
                    if verdict.kept or verdict.broken:
                        cells.setdefault(rule_id, Cell()).add(verdict, scene)
                    if verdict.broken:
                        alone = Software(found.name, found.version, verdicts={rule_id: verdict})
                        proofs.setdefault((tour.name, rule_id), []).extend([scene, *lines([alone], {})])
            print(tour.name, {name: str(cell) for name, cell in cells.items() if cell.broken}, file=sys.stderr)
            # Print previously examined breaks too: examined.toml lists only clients and rules, so a break may have a
            # new cause.
            for (client, rule_id), proof in proofs.items():
                if client == tour.name:
                    print("\n".join([rule_id, *proof]), file=sys.stderr)
    played = read_played()
    missing = unexamined(matrix, examined, played)
    for each in missing:
        print("\n".join([f"not examined: {each[0]}, {each[1]}", *proofs.get(each, ())]), file=sys.stderr)
    if missing:
        return 1
    exercised = len({rule for cells in matrix.values() for rule in cells})
    print("\n".join(page(matrix, exercised, examined, played, datetime.now(UTC))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
