"""Runs a guide's `docker` commands as an engine would, in containers of tests/image/machine.py.

It accepts only the options that the guide uses. An unknown option fails the test, so that no option is silently
ignored.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.image.conftest import Run
from tests.image.machine import DATA, Container
from tests.support.oracle import REPOSITORY

BUILT_FROM = ("docker/Dockerfile", ".")  # the Dockerfile and the context that .ci/image builds from
RELEASED = "ghcr.io/odradek/odradek"
NETWORK = "172.31.0."
# Plays the engine's init process, which passes SIGTERM on. Without it, the program would be process 1, which ignores
# signals that it does not handle.
INIT = ("sh", "-c", "trap 'kill $!' TERM; \"$@\" & wait $!", "sh")


class Strict(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise AssertionError(f"the test cannot play {self.prog}: {message}")


def parser(command: str) -> Strict:
    return Strict(prog=f"docker {command}", add_help=False, allow_abbrev=False)


@dataclass(frozen=True, slots=True)
class Service:
    """A started service of a compose file. `container` is None if the service does not run here because its image is
    not Odradek's."""

    name: str
    container: Container | None


@dataclass(slots=True)
class Engine:
    """An engine with one bridge. As on Docker's default network, containers that have joined no network cannot resolve
    one another's names."""

    start: Run
    folder: Path
    images: set[str] = field(default_factory=set)
    networks: dict[str, dict[str, str]] = field(default_factory=dict)  # for each network, addresses by name
    containers: dict[str, Container] = field(default_factory=dict)
    _last: int = 1

    def build(self, words: Sequence[str]) -> None:
        """Checks that the command would build the image that the tests run. `.ci/image` has already built it with
        buildah."""
        build = parser("build")
        build.add_argument("-f")
        build.add_argument("-t")
        build.add_argument("context")
        given = build.parse_args(words)
        assert (given.f, given.context) == BUILT_FROM
        self.images.add(given.t)

    def tag(self, words: Sequence[str]) -> None:
        source, target = words
        assert source in self.images
        self.images.add(target)

    def network(self, words: Sequence[str]) -> None:
        action, name = words
        assert action == "create"
        assert name not in self.networks
        self.networks[name] = {}

    def run(self, words: Sequence[str]) -> Container:
        """Starts a container and returns it immediately, with or without `-d`."""
        run = parser("run")
        for switch in ("-d", "--rm", "--read-only"):
            run.add_argument(switch, action="store_true")
        run.add_argument("--name")
        run.add_argument("--network")
        for several in ("-p", "-v", "-e"):
            run.add_argument(several, action="append", default=[])
        run.add_argument("image")
        run.add_argument("words", nargs=argparse.REMAINDER)
        given = run.parse_args(words)
        assert given.image in self.images, f"no image is called {given.image}"
        return self._started(
            given.name,
            given.words,
            network=given.network,
            ports=given.p,
            volumes=given.v,
            environment=dict(each.split("=", 1) for each in given.e),
            is_read_only=given.read_only,
        )

    def exec(self, words: Sequence[str]) -> str:
        name, *command = words
        done = self.containers[name].execute(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def compose(self, words: Sequence[str]) -> list[Service]:
        """Starts the services of compose files. Before starting a service, waits for its dependencies as `depends_on`
        specifies."""
        compose = parser("compose")
        compose.add_argument("-f", action="append")
        compose.add_argument("action")
        compose.add_argument("rest", nargs=argparse.REMAINDER)
        given = compose.parse_args(words)
        services = config(*(REPOSITORY / file for file in given.f))
        if given.action == "run":
            *options, service = given.rest
            assert options == ["--rm"]
            assert service in services
            services = {name: services[name] for name in (*needed_by(services, service), service)}
        else:
            assert (given.action, given.rest) == ("up", [])
        project = f"compose{self._last}"
        self.networks[project] = {}
        started: dict[str, Service] = {}
        for name in in_order(services):
            for other, how in services[name].get("depends_on", {}).items():
                self._wait(started[other], services[other], how["condition"])
            image = services[name]["image"].partition(":")[0]
            container = self._serve(project, name, services[name]) if image == RELEASED else None
            started[name] = Service(name, container)
        return list(started.values())

    def _wait(self, service: Service, described: Mapping[str, Any], condition: str) -> None:
        container = service.container
        if container is None:
            return
        if condition == "service_completed_successfully":
            assert container.wait() == 0, container.log
        elif condition == "service_healthy":
            kind, *check = described["healthcheck"]["test"]
            assert kind == "CMD"
            deadline = time.monotonic() + 60
            while (checked := container.execute(*check)).returncode != 0:
                assert time.monotonic() < deadline, f"{checked.stderr}\n{container.log}"
                time.sleep(0.1)
        else:
            assert condition == "service_started"

    def _serve(self, project: str, name: str, service: Mapping[str, Any]) -> Container:
        assert service.keys() <= {
            *("image", "build", "ports", "environment", "volumes", "read_only", "restart", "healthcheck"),
            *("entrypoint", "command", "depends_on", "init"),
        }
        entry_point = service.get("entrypoint")
        if service.get("init"):
            assert entry_point is not None
            entry_point = [*INIT, *entry_point]
        return self._started(
            name,
            [each.replace("$$", "$") for each in service.get("command", ())],
            network=project,
            ports=service.get("ports", ()),
            volumes=service.get("volumes", ()),
            environment={key: str(value) for key, value in service.get("environment", {}).items()},
            is_read_only=service.get("read_only", False),
            entry_point=entry_point,
        )

    def _started(
        self,
        name: str | None,
        words: Sequence[str],
        *,
        network: str | None,
        ports: Sequence[str],
        volumes: Sequence[str],
        environment: Mapping[str, str],
        is_read_only: bool,
        entry_point: Sequence[str] | None = None,
    ) -> Container:
        self._last += 1
        address = f"{NETWORK}{self._last}"
        known = {} if network is None else self.networks[network]
        options: dict[str, Any] = {"volume": self.folder / f"anonymous{self._last}", "mounts": {}}
        for each in volumes:
            source, target, *_ = each.split(":")
            path = Path(source) if source.startswith("/") else self.folder / f"{network}-{source}"
            if target == DATA:
                options["volume"] = path
            else:
                options["mounts"][target] = path
        container = self.start(
            *words,
            name=name or f"container{self._last}",
            address=address,
            knows=dict(known),
            ports=[published(each) for each in ports],
            environment=environment,
            is_read_only=is_read_only,
            entry_point=entry_point,
            **options,
        )
        if name is not None:
            known[name] = address
            assert name not in self.containers, f"a container is already called {name}"
            self.containers[name] = container
        return container


def published(port: str) -> tuple[int, int]:
    """Parses `9092:9092` into the ports of the host and the container. A host address may precede them, and a protocol
    may follow."""
    *_, outside, inside = port.partition("/")[0].split(":")
    return int(outside), int(inside)


def config(*files: Path) -> dict[str, dict[str, Any]]:
    """Returns the services that Compose reads from these files. Fails if a file is invalid."""
    options = [word for file in files for word in ("-f", str(file))]
    done = subprocess.run(["docker-compose", *options, "config"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    services: dict[str, dict[str, Any]] = yaml.safe_load(done.stdout)["services"]
    return services


def in_order(services: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the names of the services, each after its dependencies."""
    found: dict[str, None] = {}
    for name in services:
        found |= dict.fromkeys((*needed_by(services, name), name))
    return list(found)


def needed_by(services: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    found: dict[str, None] = {}
    for other in services[name].get("depends_on", {}):
        found |= dict.fromkeys((*needed_by(services, other), other))
    return list(found)
