"""Releases with a bug that only the application sees are convicted of its rule by a scenario of the suite, and the
releases that mend it are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.testing.judge.verdicts import BROKEN, KEPT
from tests.judge_history.installing import install, interpreter
from tests.judge_history.suite import DRIVERS, outcome


@dataclass(frozen=True, slots=True)
class Row:
    """bug: where the project tells of it.

    python: whose wheels the releases have, where that is not this one.

    also: rules that the mended release came to keep besides.
    """

    bug: str
    package: str
    driver: str
    bad: str
    good: str
    rule: str
    python: str | None = None
    also: tuple[str, ...] = ()


ROWS = (
    Row("fede1024/rust-rdkafka#349", "confluent-kafka", "librdkafka.py", "1.6.0", "1.6.1", "TXN.11", "3.8"),
    Row("aio-libs/aiokafka#1115", "aiokafka", "aiokafka_.py", "0.12.0", "0.13.0", "PRD.7", also=("VER.1",)),
    Row("KIP-896", "confluent-kafka", "librdkafka.py", "1.7.0", "1.8.2", "VER.8", "3.8"),
    Row("twmb/franz-go#1348", "github.com/twmb/franz-go", "franz_go.go", "1.21.3", "1.21.4", "FET.4"),
    Row("twmb/franz-go#1348", "github.com/twmb/franz-go", "franz_go.go", "1.21.3", "1.21.4", "TXN.8"),
    Row("tulios/kafkajs#1388", "kafkajs", "kafkajs.js", "2.0.2", "2.1.0", "TXN.11"),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.bug}-{row.rule}")
def test_the_bug_is_found_and_the_mended_release_passes(row: Row, tmp_path: Path) -> None:
    python = interpreter(row.python)
    if python is None:
        pytest.skip(f"needs a Python {row.python}")
    found = {}
    for version in (row.bad, row.good):
        release = install(row.package, version, DRIVERS / row.driver, (), python)
        settings = [f"{name}={value}" for name, value in release.environment.items()]
        found[version] = outcome(["env", *settings, *release.words], tmp_path / version, row.rule)
    assert found[row.bad][BROKEN] - found[row.good][BROKEN] == {row.rule, *row.also}
    assert row.rule in found[row.good][KEPT]
