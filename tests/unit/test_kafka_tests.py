"""Tests which classes of Kafka's test jars `python -m tests.client_lab.foreign_suites kafka` runs."""

import zipfile
from pathlib import Path

import pytest

from tests.client_lab import kafka_tests
from tests.client_lab.kafka_tests import JARS, NEEDS_CLUSTER, STREAMS, STREAMS_CLUSTER, STREAMS_PROTOCOL, VERSION

OF_STREAMS = STREAMS_CLUSTER + STREAMS_PROTOCOL
VARIANT = "SmokeTest$WithAssignmentBatchingDisabledTest"


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kafka_tests.KafkaTests:
    """Creates test jars and returns a `KafkaTests` for them. Their classes contain only the words by which test classes
    are recognised."""
    classes = {
        "kafka-tools": {"ToolTest": NEEDS_CLUSTER, "ToolTest$Answer": b"", "HelpTest": b""},
        STREAMS: {
            "SmokeTest": OF_STREAMS,
            VARIANT: b"",
            "SmokeTest$StoresToTest": b"",
            "ClassicTest": STREAMS_CLUSTER,
            "ClassicTest$WithAssignmentBatchingDisabledTest": b"",
            "Utils": OF_STREAMS,
        },
    }
    for name in (*JARS, STREAMS):
        with zipfile.ZipFile(tmp_path / f"{name}-{VERSION}-test.jar", "w") as jar:
            for each, code in classes.get(name, {}).items():
                jar.writestr(f"org/{each}.class", code)
    monkeypatch.setattr(kafka_tests, "install_jars", lambda name, coordinates: str(tmp_path / "*"))
    return kafka_tests.KafkaTests(tmp_path, on_kafka=True)


def test_classes_run_that_start_a_cluster_and_know_the_streams_protocol(tests: kafka_tests.KafkaTests) -> None:
    assert tests.classes([]) == ["org.ToolTest", "org.SmokeTest", f"org.{VARIANT}"]


@pytest.mark.parametrize("name", [STREAMS, "SmokeTest"])
def test_a_class_includes_its_variants_with_other_settings(tests: kafka_tests.KafkaTests, name: str) -> None:
    assert tests.classes([name]) == ["org.SmokeTest", f"org.{VARIANT}"]


def test_a_variant_can_run_alone(tests: kafka_tests.KafkaTests) -> None:
    assert tests.classes([VARIANT]) == [f"org.{VARIANT}"]
