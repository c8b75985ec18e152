"""Tests that the compose files and the files for Prometheus and Grafana are valid and consistent."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

DOCKER = Path(__file__).resolve().parents[2] / "docker"
BASE, OBSERVE, SECURE, SPARK = (DOCKER / f"compose{which}.yaml" for which in ("", ".observe", ".secure", ".spark"))


def config(*files: Path) -> dict[str, dict[str, object]]:
    """Returns the configuration that Compose derives from these files."""
    options = [word for file in files for word in ("-f", str(file))]
    done = subprocess.run(["docker-compose", *options, "config"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    services: dict[str, dict[str, object]] = yaml.safe_load(done.stdout)["services"]
    return services


def test_the_producer_and_the_consumer_wait_for_a_healthy_broker() -> None:
    services = config(BASE)
    assert services.keys() == {"broker", "producer", "consumer"}
    for name in ("producer", "consumer"):
        assert services[name]["depends_on"] == {"broker": {"condition": "service_healthy"}}


def test_monitoring_is_added_to_the_same_broker() -> None:
    assert config(BASE, OBSERVE).keys() == {"broker", "producer", "consumer", "prometheus", "grafana"}


def test_a_secured_broker_waits_for_certificates_and_its_clients_for_rights() -> None:
    services = config(SECURE)
    waits_for = {name: list(service.get("depends_on", {})) for name, service in services.items()}  # type: ignore[call-overload]
    assert waits_for == {
        "certificates": [],
        "broker": ["certificates"],
        "rights": ["broker"],
        "producer": ["rights"],
        "consumer": ["rights"],
    }
    for name in ("server", "admin", "clock"):
        assert (DOCKER / "secure" / f"{name}.properties").is_file()


def test_a_cluster_of_spark_is_added_to_the_same_broker() -> None:
    services = config(BASE, SPARK)
    assert services.keys() - config(BASE).keys() == {"spark-master", "spark-worker-1", "spark-worker-2", "pipeline"}
    environment = services["broker"]["environment"]
    assert environment["KAFKA_TRANSACTION_TWO_PHASE_COMMIT_ENABLE"] == "true"  # type: ignore[index]
    assert environment["KAFKA_NUM_PARTITIONS"] == 3  # type: ignore[index]


def test_every_mounted_file_is_there() -> None:
    for name, service in yaml.safe_load(OBSERVE.read_text())["services"].items():
        for entry in service["volumes"]:
            source = entry.split(":")[0]
            assert not source.startswith("./") or (DOCKER / source).is_file(), f"{name}: {source}"
    dashboards = yaml.safe_load((DOCKER / "observe/grafana/dashboards.yaml").read_text())
    mounted = [entry.split(":")[1] for entry in yaml.safe_load(OBSERVE.read_text())["services"]["grafana"]["volumes"]]
    folder = dashboards["providers"][0]["options"]["path"]
    assert any(target.startswith(f"{folder}/") for target in mounted)
    source = yaml.safe_load((DOCKER / "observe/grafana/datasource.yaml").read_text())["datasources"][0]
    variable = json.loads((DOCKER / "observe/grafana/odradek.json").read_text())["templating"]["list"][0]
    assert (source["type"], source["uid"]) == (variable["query"], variable["current"]["value"])


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "--syntax-only", "observe/prometheus.yaml"),
        ("check", "rules", "observe/alerts.yaml"),
        ("test", "rules", "observe/alerts.test.yaml"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_promtool_accepts_the_files_and_passes_their_tests(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=DOCKER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_whose_expression_computes_something_has_a_test() -> None:
    rules = yaml.safe_load((DOCKER / "observe/alerts.yaml").read_text())["groups"][0]["rules"]
    tested = (DOCKER / "observe/alerts.test.yaml").read_text()
    simple = {
        "BrokerDown",
        "PartitionOffline",
        "LateTransactions",
        "TransactionKeptForRecovery",
    }  # These alerts compare one metric with one limit.
    simple |= {"ShareLocksExpireInTransactions"}
    assert [rule["alert"] for rule in rules if rule["alert"] not in simple and rule["alert"] not in tested] == []
