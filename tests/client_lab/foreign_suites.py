"""Runs the test suites of other projects' clients against this broker and judges the requests that the clients sent.

`python -m tests.client_lab.foreign_suites franz-go [PATTERN ...]` runs the tests of franz-go's module in pieces. Each
pattern is one piece, in the syntax of `go test -run`. `... java [FILE ...]` runs the clients and tools of Apache Kafka
in the same way as the conformance tests. `... kafka [NAME ...]` runs Apache Kafka's own integration tests; a name is a
class or a jar. `... on-kafka [NAME ...]` runs the same tests on the cluster that they start themselves. `... judge
FOLDER` judges existing recordings. The exit status is 1 if there is a break that examined.toml does not list. The proof
of each break is printed, and the recordings are kept in .make/suites.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek.testing.judge.reports import lines
from odradek.testing.judge.verdicts import BROKEN, RuleVerdict, Software
from odradek.testing.sync import Odradek, Process
from tests.client_lab.kafka_tests import KafkaTests
from tests.client_lab.running import recorded_verdicts
from tests.client_lab.verdicts_page import read_examined

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / ".make" / "suites"
FRANZ_GO = "github.com/twmb/franz-go@v1.22.2"
# by software name in ApiVersions requests: the client's title in examined.toml
KNOWN_AS = {"kgo": "franz-go 1.22.2", "apache-kafka-java": "Java 4.3.1"}
# Client ids in requests that Kafka's and Odradek's tests encode themselves. Some of these requests are intentionally
# invalid.
OURS = {"wire", "client-id"}
RECORDS = 5_000  # number of records in franz-go's largest tests, instead of 500,000
PIECE_S = 280
# Each group of slow tests gets a separate recording.
PIECES = ("^TestGroupETL", "^TestTxn", "^TestShare", "^Test([^GTS]|G[^r]|T[^x]|S[^h])")
JAVA = (
    *("test_java_transactions.py", "test_java_share_consumers.py", "test_java_consumer_groups.py"),
    *("test_kafka_tools.py", "test_kafka_tools_of_consumer_groups.py", "test_kafka_tools_of_share_groups.py"),
)


def franz_go(patterns: Sequence[str]) -> list[Path]:
    """Runs franz-go's tests and returns the recordings. Raises CalledProcessError if the tests cannot be built."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    tests, recordings = FOLDER / "kgo.test", []
    source = FOLDER / "franz-go"
    if not tests.exists():
        download = ["go", "mod", "download", "-json", FRANZ_GO]
        output = subprocess.run(download, capture_output=True, check=True, cwd="/").stdout
        shutil.copytree(json.loads(output)["Dir"], source, dirs_exist_ok=True, copy_function=shutil.copyfile)
        build = ["go", "test", "-mod=mod", "-c", "-o", str(tests), "."]
        subprocess.run(build, cwd=source / "pkg" / "kgo", check=True)
    for number, pattern in enumerate(patterns or PIECES):
        recording = FOLDER / f"franz-go-{number}"
        words = [str(tests), "-test.v", f"-test.timeout={PIECE_S}s", f"-test.run={pattern}"]
        recordings.append(recording)
        process = Process({}, recording)
        try:
            bootstrap = Odradek("127.0.0.1", process.ready["http_port"]).default.bootstrap
            limits = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS), "KGO_LOG_LEVEL": "none"}
            environment = {**os.environ, **limits, "KGO_SEEDS": bootstrap}
            done = subprocess.run(
                words, cwd=source / "pkg" / "kgo", env=environment, capture_output=True, text=True, check=False
            )
        finally:
            process.stop()
        recording.with_suffix(".log").write_text(done.stdout + done.stderr, encoding="utf-8")
        passed, failed = (done.stdout.count(f"\n--- {word}") for word in ("PASS", "FAIL"))
        print(f"{pattern}: status {done.returncode}, {passed} passed, {failed} failed", flush=True)
    return recordings


def java(files: Sequence[str]) -> list[Path]:
    folder = FOLDER / "java"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = [str(REPOSITORY / "tests" / "conformance" / file) for file in files or JAVA]
    words = [sys.executable, "-m", "pytest", "--timeout", "300", *paths]
    subprocess.run(words, env={**os.environ, "RECORDINGS": str(folder)}, cwd=REPOSITORY, check=False)
    return sorted(folder.iterdir())


def kafka(classes: Sequence[str], *, on_kafka: bool = False) -> list[Path]:
    """Runs Kafka's integration tests and returns the recordings. Prints the number of tests per result, and the reason
    for each test that did not pass.

    Raises CalledProcessError if the tests cannot be installed or compiled.
    """
    tests = KafkaTests(FOLDER / ("on-kafka" if on_kafka else "kafka"), on_kafka=on_kafka)
    recordings: list[Path] = []
    counts: Counter[str] = Counter()
    for name in tests.classes(classes):
        outcomes, recorded = tests.run(name)
        recordings += recorded
        counts.update(each.result for each in outcomes)
        print(name, *(f"\n  {each.result}: {each.test}: {each.words}" for each in outcomes if each.words), flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return recordings


def report(recordings: Iterable[Path]) -> int:
    """Prints each break and the number of times that each rule was kept. Returns the number of breaks that
    examined.toml does not list."""
    examined = {(each.client, each.rule) for each in read_examined()}
    kept: dict[str, dict[str, int]] = {}
    broken: list[tuple[Path, Software, RuleVerdict]] = []
    for recording in recordings:
        for software in recorded_verdicts(recording):
            if software.client_ids <= OURS:
                continue
            rules = kept.setdefault(software.title, {})
            for verdict in software.verdicts.values():
                if verdict.kept:
                    rules[verdict.rule.id] = rules.get(verdict.rule.id, 0) + verdict.kept
            broken += ((recording, software, verdict) for verdict in software.of(BROKEN))
    for title, rules in kept.items():
        print(f"{title}: {len(rules)} rules kept, {sum(rules.values())} times")
    missing = 0
    for recording, software, verdict in broken:
        known = KNOWN_AS.get(software.name, software.title)
        is_known = (known, verdict.rule.id) in examined
        missing += not is_known
        alone = Software(software.name, software.version, verdicts={verdict.rule.id: verdict})
        print("\n".join([f"{recording.name}: {'' if is_known else 'not '}examined", *lines([alone], {})]))
    return missing


def main() -> int:
    match sys.argv[1:]:
        case ["franz-go", *patterns]:
            recordings = franz_go(patterns)
        case ["java", *files]:
            recordings = java(files)
        case ["kafka", *classes]:
            recordings = kafka(classes)
        case ["on-kafka", *classes]:
            kafka(classes, on_kafka=True)
            return 0
        case ["judge", folder]:
            recordings = sorted(each for each in Path(folder).rglob("*") if each.is_file() and each.suffix != ".log")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    if not recordings:
        print("nothing was recorded", file=sys.stderr)
        return 1
    return 1 if report(recordings) else 0


if __name__ == "__main__":
    sys.exit(main())
