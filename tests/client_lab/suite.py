"""Runs the scenarios of `odradek judge --suite` with one driver and collects the rules that the driver's clients keep
and break.

`python -m tests.client_lab.suite [CLIENT ...]` runs all scenarios with the drivers of these clients and replaces their
entries in `played.toml`, which docs/verdicts.md shows. CLIENT is the start of a name in CLIENTS; the default is all
clients. A run takes about 6 minutes per client.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Final

from odradek.testing.judge.verdicts import BROKEN, KEPT, verdicts
from odradek.testing.suite.running import NO_SUCH_COMMAND, Outcome, run
from odradek.testing.suite.scenarios import SCENARIOS
from tests.client_lab.installing import DRIVERS, install, install_kafka_streams
from tests.support.broker_process import REFERENCE
from tests.support.oracle import run_kafka

PLAYED = Path(__file__).with_name("played.toml")
OWN = (sys.executable, str(DRIVERS / "own.py"))
KAFKA_STREAMS: Final = f"Kafka Streams {REFERENCE}"
UNMET: Final = "unmet"
WITHOUT: Final = "without"


def installed(package: str, version: str, driver: str) -> Callable[[], Sequence[str]]:
    def command() -> Sequence[str]:
        return install(package, version, DRIVERS / driver).command

    return command


def java() -> Sequence[str]:
    classpath = run_kafka("classpath", "--version", REFERENCE).strip()
    return "java", "-cp", classpath, str(DRIVERS / "KafkaClients.java")


def kafka_streams() -> Sequence[str]:
    return "java", "-cp", install_kafka_streams(REFERENCE), str(DRIVERS / "StreamsApplications.java")


CLIENTS: Mapping[str, Callable[[], Sequence[str]]] = {
    "librdkafka (confluent-kafka 2.16.1)": installed("confluent-kafka", "2.16.1", "librdkafka.py"),
    f"Java {REFERENCE}": java,
    KAFKA_STREAMS: kafka_streams,
    "franz-go 1.22.3": installed("github.com/twmb/franz-go", "1.22.3", "franz_go.go"),
    "kafka-python 3.0.12": installed("kafka-python", "3.0.12", "kafka_python_.py"),
    "aiokafka 0.14.0": installed("aiokafka", "0.14.0", "aiokafka_.py"),
    "KafkaJS 2.2.4": installed("kafkajs", "2.2.4", "kafkajs.js"),
    "ours": lambda: OWN,
}


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The result of the complete suite for one client: its rules, grouped by outcome.

    unmet    rules whose scenario prepared a situation that the client did not reach
    without  rules that need a feature that the client or its driver does not have
    """

    client: str
    on: date
    kept: Sequence[str]
    broken: Sequence[str]
    unmet: Sequence[str]
    without: Sequence[str]

    def end_of(self, rule: str) -> str:
        """Returns the table cell for this rule, which is empty if the client never reached the prepared situation."""
        ends = {"kept": self.kept, "**broken**": self.broken, "–": self.without}
        return next((words for words, rules in ends.items() if rule in rules), "")

    def lines(self) -> list[str]:
        """Returns the lines of this client's entry in played.toml."""
        lists = ("kept", "broken", UNMET, WITHOUT)
        record_outcome = [f"{name} = {json.dumps(list(getattr(self, name)))}" for name in lists]
        return ["[[played]]", f'client = "{self.client}"', f"on = {self.on:%Y-%m-%d}", *record_outcome]


def outcome(command: Sequence[str], folder: Path, *rules: str) -> dict[str, set[str]]:
    """Runs the scenarios of `rules`. Returns, by verdict, the rules that the driver's clients broke, the rules that
    they kept, the rules that need a missing feature, and the rules whose scenario decided nothing."""
    folder.mkdir(exist_ok=True)
    ends: list[Outcome] = []

    def record_outcome(end: Outcome) -> None:
        print(end)
        ends.append(end)

    played = run(command, [each for each in SCENARIOS if each.rule in rules], folder, record_outcome)
    found = verdicts(chain.from_iterable(played))
    broken = {each.rule.id for one in found for each in one.of(BROKEN)}
    kept = {each.rule.id for one in found for each in one.of(KEPT)} - broken
    without = {end.scenario.rule for end in ends if (end.skipped or "").startswith(NO_SUCH_COMMAND)} - broken - kept
    return {BROKEN: broken, KEPT: kept, WITHOUT: without, UNMET: set(rules) - broken - kept - without}


def read_played(path: Path = PLAYED) -> list[SuiteResult]:
    return [SuiteResult(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["played"]]


def main() -> None:
    rules = [each.rule for each in SCENARIOS]
    for client in [each for each in CLIENTS if any(map(each.startswith, sys.argv[1:] or [""]))]:
        with tempfile.TemporaryDirectory(prefix="suite-") as folder:
            found = outcome(CLIENTS[client](), Path(folder), *rules)
        ends = {name: sorted(found[name] & {*rules, *found[BROKEN]}) for name in (KEPT, BROKEN, UNMET, WITHOUT)}
        now = SuiteResult(client, datetime.now(UTC).date(), ends[KEPT], ends[BROKEN], ends[UNMET], ends[WITHOUT])
        others = {each.client: each for each in read_played()} | {client: now}
        entries = [others[name].lines() for name in CLIENTS if name in others]
        head = "# How `odradek judge --suite` ended for each client: written by `python -m tests.client_lab.suite`."
        PLAYED.write_text("\n".join([head, *("\n".join(["", *each]) for each in entries), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
