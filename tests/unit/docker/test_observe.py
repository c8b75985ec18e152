"""Tests that the dashboard and the alert rules use only metrics that the broker exports. `make image-test` checks their
syntax with promtool."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.system.processes import resident_bytes
from tests.unit.broker.http.test_exposition import MEASURES, samples

OBSERVE = Path(__file__).resolve().parents[3] / "docker/observe"
DASHBOARD = json.loads((OBSERVE / "grafana/odradek.json").read_text())
METRIC = re.compile(r"\b(?:kafka|odradek|process)_\w+")
NAMES = {key[0] for key in samples(MEASURES)}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_a_panel_shows_only_existing_metrics(panel: dict[str, Any]) -> None:
    named = {name for target in panel["targets"] for name in METRIC.findall(target["expr"])}
    assert named
    if resident_bytes() is None:  # only Linux has these metrics
        named = {each for each in named if not each.startswith("process_")}
    assert named <= NAMES


def test_no_two_panels_lie_on_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_alert_rules_use_only_existing_metrics() -> None:
    rules = (OBSERVE / "alerts.yaml").read_text()
    named = set(METRIC.findall(rules))
    assert len(named) > 8
    assert named <= NAMES


def test_every_metric_of_the_broker_is_on_the_dashboard() -> None:
    text = json.dumps(DASHBOARD)
    left_out = {
        "kafka_cluster_partition_produceridcount",  # per partition; the sum over all partitions is another metric
        "kafka_log_log_logendoffset",
        "kafka_log_log_logstartoffset",
        "kafka_network_requestmetrics_remotetimems_count",
        "kafka_network_requestmetrics_remotetimems_sum",
        "kafka_network_requestmetrics_requestbytes_count",
        "kafka_network_requestmetrics_requestbytes_sum",
        "kafka_server_replicamanager_leadercount",
        "kafka_server_replicamanager_partitioncount",
        "kafka_server_replicamanager_produceridcount",
        "odradek_info",  # this metric has only labels
    }
    own = {name for name in NAMES if name.startswith(("kafka_", "odradek_"))}
    of_one_family = re.compile(r"_(?:bucket|count|sum|created)$")
    missing = {
        name for name in own - left_out if name not in text and not re.search(of_one_family.sub("", name) + "_", text)
    }
    assert missing == set()
