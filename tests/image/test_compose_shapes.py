"""Tests that compose files for apache/kafka 4.3.1 with one node start with this image if only `image:` is changed.

The files are modelled on public compose files, without SASL and TLS.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.image.clients import consume, produce
from tests.image.conftest import Run
from tests.image.machine import DATA, Container

SHAPES = sorted(Path(__file__).with_name("shapes").glob("*.yaml"))


def environment(service: dict[str, Any]) -> dict[str, str]:
    given = service.get("environment", {})
    if isinstance(given, list):
        return dict(pair.split("=", 1) for pair in given)
    return {name: str(value) for name, value in given.items()}


def up(service: dict[str, Any], name: str, start: Run, tmp_path: Path, folder: Path) -> Container:
    """Starts a service as an engine would. Supports only the keys that occur in the files."""
    known = {"image", "hostname", "container_name", "ports", "environment", "volumes", "healthcheck"}
    assert service.keys() <= known
    options: dict[str, Any] = {"mounts": {}, "volume": tmp_path / "anonymous"}
    for entry in service.get("volumes", ()):
        source, _, target = entry.partition(":")
        if target != DATA:
            options["mounts"][target] = (folder / source).resolve()
    ports = [tuple(int(port) for port in entry.split(":")) for entry in service.get("ports", ())]
    return start(name=service.get("hostname", name), environment=environment(service), ports=ports, **options)


def health(service: dict[str, Any], container: Container) -> list[str]:
    """Returns the service's health check command or, if it has none, the image's."""
    test = service.get("healthcheck", {}).get("test")
    if test is None:
        return list(container.image.health_check)
    return ["sh", "-c", test] if isinstance(test, str) else list(test[1:])


@pytest.mark.parametrize("file", SHAPES, ids=lambda file: file.stem)
def test_a_compose_file_for_apache_kafka_starts_with_only_the_image_changed(
    file: Path, start: Run, tmp_path: Path
) -> None:
    services = yaml.safe_load(file.read_text())["services"]
    name, service = next(iter(services.items()))
    broker = up(service, name, start, tmp_path, file.parent)
    broker.wait_for("accepts Kafka clients")
    broker.wait_until_healthy()
    checked = broker.execute(*health(service, broker))
    assert checked.returncode == 0, checked.stderr
    for job in list(services.values())[1:]:
        done = start(*job["command"], name="job", address="172.31.0.3", ports=(), knows={name: broker.address})
        assert done.wait() == 0, done.log
        done.remove()
    host_port = broker.ports[0][0]
    produce(f"localhost:{host_port}", "orders", ["1"])
    assert consume(f"localhost:{host_port}", "orders", 1) == ["1"]
    assert "WARNING odradek: settings without effect" not in broker.log
    assert "is told to connect to" not in broker.log


def test_a_setting_without_effect_is_noted_once(start: Run) -> None:
    service = yaml.safe_load(SHAPES[-1].with_name("quickstart.yaml").read_text())["services"]["broker"]
    broker = start(environment=environment(service))
    broker.wait_for("accepts Kafka clients")
    assert broker.log.count("controller.quorum.voters") == 1
    assert (
        "INFO odradek: these settings have no effect on a single broker, and are ignored: controller.quorum.voters,"
    ) in broker.log


def test_a_cluster_id_that_changes_does_not_keep_the_broker_from_its_volume(start: Run, tmp_path: Path) -> None:
    for cluster_id in ("4L6g3nShT-eMCtK--X86sw", "5L6g3nShT-eMCtK--X86sw"):
        broker = start(volume=tmp_path / "volume", environment={"CLUSTER_ID": cluster_id})
        broker.wait_for("accepts Kafka clients")
        described = broker.execute("odradek", "cluster", "describe")
        assert "4L6g3nShT-eMCtK--X86sw" in described.stdout
        broker.stop()
        broker.remove()
    ignored = "CLUSTER_ID=5L6g3nShT-eMCtK--X86sw is ignored: this data directory belongs to 4L6g3nShT-eMCtK--X86sw"
    assert ignored in broker.log
