"""Records the APIs, features and default settings of each Apache Kafka release, for clusters that emulate it.

`python -m tests.conformance.releases` rewrites `odradek/broker/control/clusters/releases.json`. It gets each release
from Maven, formats a directory with the release's own tool, starts the release with its defaults, and sends ApiVersions
v4 and DescribeConfigs.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse
from tests.support.oracle import REPOSITORY, run_kafka
from tests.support.ports import free_port
from tests.support.wire import ClosedByBroker, Wire

RECORDED = REPOSITORY / "odradek" / "broker" / "control" / "clusters" / "releases.json"
# By emulated release: the Kafka release to run, and the feature levels that its directory is formatted with.
RELEASES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "3.9": ("3.9.1", {}),
    "4.0": ("4.0.0", {}),
    "4.0-tv1": ("4.0.0", {"transaction.version": 1}),
    "4.3": ("4.3.1", {}),
    "4.4": ("4.4.0", {}),
}
# Odradek's own defaults are those of this release. Other releases record their differences from it.
DEFAULTS_OF = "4.4"
BROKER_RESOURCE = 4
DEFAULT_SOURCE = 5
NAMES = {key.value: key.kafka_name for key in ApiKey}
START_TIMEOUT_S = 120
CLUSTER_ID = "b2RyYWRlay1vcmFjbGUtMQ"
JVM = ("-Xmx400M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def running(version: str, features: Mapping[str, int]) -> Iterator[int]:
    """Starts a release on a new directory and yields its port. Does not use `kafka start`, which cannot start 3.9
    because that release writes its log to a different place."""
    classpath = run_kafka("classpath", "--version", version, timeout=600).strip().splitlines()[-1]
    with tempfile.TemporaryDirectory(prefix="odradek-release-") as folder:
        port, controller = free_port(), free_port()
        properties = Path(folder) / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": f"{folder}/data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        java = ["java", *JVM, "-cp", classpath]
        levels = [f"--feature={name}={level}" for name, level in features.items()]
        words = ["format", "--cluster-id", CLUSTER_ID, "--config", str(properties), *levels]
        subprocess.run([*java, "kafka.tools.StorageTool", *words], check=True, capture_output=True)
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until_ready(process, port)
            yield port
        finally:
            process.kill()
            process.wait()


def wait_until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Waits until Kafka answers and reports its finalised features, which it reads from its metadata log."""
    until_s = time.monotonic() + START_TIMEOUT_S
    while True:
        assert process.poll() is None, "Kafka ended"
        assert time.monotonic() < until_s, "Kafka did not start"
        try:
            if api_versions(port).finalized_features:
                return
        except (OSError, ClosedByBroker):
            pass
        time.sleep(0.2)


def api_versions(port: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
    with Wire(f"127.0.0.1:{port}") as wire:
        return wire.ask(request, 4, ApiVersionsResponse)


def reported_versions(answer: ApiVersionsResponse) -> dict[str, Any]:
    """Returns a response's APIs and features, in the format of releases.json."""
    return {
        "apis": {
            NAMES.get(each.api_key, str(each.api_key)): [each.min_version, each.max_version]
            for each in sorted(answer.api_keys, key=lambda each: each.api_key)
        },
        "supported": {each.name: [each.min_version, each.max_version] for each in answer.supported_features},
        "finalized": {each.name: each.max_version_level for each in answer.finalized_features},
    }


def defaults(port: int) -> dict[str, str | None]:
    """Returns the defaults of the broker settings that Odradek also has."""
    resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    with Wire(f"127.0.0.1:{port}") as wire:
        (result,) = wire.ask(request, 4, DescribeConfigsResponse).results
    return {
        each.name: synonym.value
        for each in result.configs
        for synonym in each.synonyms
        if synonym.source == DEFAULT_SOURCE and synonym.name in BROKER_SETTINGS and synonym.name == each.name
    }


def recorded() -> dict[str, Any]:
    """Starts each release and returns the contents of releases.json. Needs Java and Maven."""
    answers: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, str | None]] = {}
    for name, (version, features) in RELEASES.items():
        with running(version, features) as port:
            answers[name] = {"kafka": version, **reported_versions(api_versions(port))}
            values[name] = defaults(port)
    newest = values[DEFAULTS_OF]
    for name, answer in answers.items():
        found = sorted(values[name].items())
        answer["defaults"] = {each: value for each, value in found if value != newest.get(each, value)}
    return answers


def text_of(answers: Mapping[str, Any]) -> str:
    """Returns JSON text with one line for each API."""
    return re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", json.dumps(answers, indent=2)) + "\n"


if __name__ == "__main__":
    RECORDED.write_text(text_of(recorded()))
    sys.stdout.write(f"{RECORDED}\n")
