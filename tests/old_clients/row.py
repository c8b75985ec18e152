"""A bug of a client: under the state that provokes it, an application sees it with the old release, and not with the
release that mends it, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.testing.sync import Cluster, Odradek
from tests.judge_history.installing import install, interpreter
from tests.old_clients.running import Setting, seen_by

PROGRAMS = Path(__file__).parent / "workloads"


@dataclass(frozen=True, slots=True)
class Client:
    package: str
    program: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One bug.

    bug          where the client's project, or its user, tells of it
    mended       None: no release mends it, and `old` is the newest
    sees         begins what the application sees with the old release; `instead` is all it sees with the mended one
    state        before the application starts; `meanwhile` happens while it runs
    traffic      tells what is seen of the application's requests besides, behind its own words
    settings     of the cluster, which is like the release `emulate` of Kafka
    python       whose wheels the releases have, where that is not this one
    environment  of the application, besides its own
    """

    bug: str
    client: Client
    old: str
    mended: str | None
    application: str
    state: Setting
    sees: str
    instead: str | None
    meanwhile: Setting | None = None
    traffic: Callable[[Cluster], str] | None = None
    nodes: int | None = None
    settings: Mapping[str, str] | None = None
    emulate: str | None = None
    python: str | None = None
    environment: Mapping[str, str] | None = None


def check(row: Row, odradek: Odradek) -> None:
    """Runs the application with the releases, each against a cluster of its own; skips without its Python."""
    python = interpreter(row.python)
    if python is None:
        pytest.skip(f"needs a Python {row.python}")
    assert row.instead is None or not row.instead.startswith(row.sees)
    assert _run(row, row.old, python, odradek).startswith(row.sees)
    if row.mended is not None:
        assert _run(row, row.mended, python, odradek) == row.instead


def _run(row: Row, version: str, python: str, odradek: Odradek) -> str:
    release = install(row.client.package, version, PROGRAMS / row.client.program, row.client.needs, python)
    with odradek.cluster(nodes=row.nodes, settings=row.settings, emulate=row.emulate) as kafka:
        row.state(kafka)
        seen = seen_by(release, row.application, kafka, row.meanwhile, row.environment)
        if row.traffic is not None:
            seen += f", {row.traffic(kafka)}"
        print(f"{row.client.package} {version}: {seen}")
        return seen
