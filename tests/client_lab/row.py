"""A row describes a client bug: the release that has the bug, the release that fixes it, and the evidence for both.

There are two kinds of evidence. A sight is an application's result that differs between the two releases. A conviction
is a rule that only the old release breaks. The judge finds the break in an application's traffic or in a scenario of
the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import pytest

from odradek.testing.judge.verdicts import BROKEN, KEPT
from odradek.testing.sync import Cluster, Odradek
from tests.client_lab.installing import DRIVERS, PROGRAMS, InstalledClient, install, interpreter
from tests.client_lab.running import HANGS, Setting, judged_clients, rules_by_verdict, run, wait_for_departure
from tests.client_lab.suite import outcome


@dataclass(frozen=True, slots=True)
class Client:
    """A client's package in its registry.

    program  file in programs/ whose functions are the applications of the rows
    driver   this client's driver for the suite, in examples/judge_drivers
    needs    packages that the registry does not install as dependencies
    """

    package: str
    program: str
    driver: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """An application that is a list of lines for the client's driver instead of a function in a program."""

    lines: tuple[str, ...]
    transactional_id: str

    @property
    def environment(self) -> Mapping[str, str]:
        return {"ODRADEK_TRANSACTIONAL_ID": self.transactional_id}


@dataclass(frozen=True, slots=True)
class Sight:
    """An application's results with the old release and with the fixed release.

    application  function in the client's program
    state        prepares the cluster before the application starts
    meanwhile    changes the cluster while the application runs
    sees         start of the application's result with the old release
    instead      complete result with the fixed release, or None if no release fixes the bug
    traffic      returns a description of the application's requests, which is appended to the application's result
    nodes        number of nodes of the cluster
    settings     settings of the cluster
    emulate      Kafka release that the cluster emulates
    environment  additional environment variables of the application
    """

    application: str
    state: Setting
    sees: str
    instead: str | None
    meanwhile: Setting | None = None
    traffic: Callable[[Cluster], str] | None = None
    nodes: int | None = None
    settings: Mapping[str, str] | None = None
    emulate: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Conviction:
    """A rule that the old release breaks in an application's traffic.

    avoided  whether the fixed release never reaches a situation in which the rule applies
    also     other rules that only the old release may break, because of the same bug or because the fixed release
             contains unrelated fixes
    """

    rule: str
    application: str | Script
    state: Setting
    avoided: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScenarioConviction:
    """A rule that the old release breaks in the scenario of `odradek judge --suite` for that rule.

    also  other rules that only the old release breaks
    """

    rule: str
    also: tuple[str, ...] = ()


Evidence: TypeAlias = Sight | Conviction | ScenarioConviction


@dataclass(frozen=True, slots=True)
class Row:
    """A bug and all evidence for it.

    bug     place where the client's project, or a user of the client, describes the bug
    mended  release that fixes the bug; None if no release fixes it, in which case `old` is the newest release
    python  Python version that the wheels of these releases need, if it differs from the running one
    """

    bug: str
    client: Client
    old: str
    mended: str | None
    evidence: Sequence[Evidence]
    python: str | None = None

    def installed(self, version: str) -> InstalledClient:
        """Installs a release. Returns the command that runs the client's program with the release."""
        return self._install(version, PROGRAMS / self.client.program)

    def installed_driver(self, version: str) -> InstalledClient:
        """Installs a release. Returns the command that runs the client's driver for the suite with the release."""
        assert self.client.driver
        return self._install(version, DRIVERS / self.client.driver)

    def _install(self, version: str, program: Path) -> InstalledClient:
        python = interpreter(self.python)
        if python is None:
            pytest.skip(f"needs a Python {self.python}")
        return install(self.client.package, version, program, self.client.needs, python)


def check_sight(row: Row, sight: Sight, odradek: Odradek) -> None:
    """Runs the application with each release on a separate cluster and checks the results."""
    assert sight.instead is None or not sight.instead.startswith(sight.sees)
    assert _observe(row, sight, row.old, odradek).startswith(sight.sees)
    if row.mended is not None:
        assert _observe(row, sight, row.mended, odradek) == sight.instead


def _observe(row: Row, sight: Sight, version: str, odradek: Odradek) -> str:
    release = row.installed(version)
    with odradek.cluster(nodes=sight.nodes, settings=sight.settings, emulate=sight.emulate) as kafka:
        sight.state(kafka)
        environment, meanwhile = sight.environment, sight.meanwhile
        seen = run(release, kafka, [sight.application], meanwhile=meanwhile, environment=environment).seen
        if sight.traffic is not None:
            seen += f", {sight.traffic(kafka)}"
        print(f"{row.client.package} {version}: {seen}")
        return seen


@dataclass(frozen=True, slots=True)
class AccusedRelease:
    """A release that the judge once wrongly accused of breaking `rule`, because the release does something unusual but
    permitted.

    The test checks that the release keeps `rule` and breaks no rule.
    """

    client: Client
    version: str
    rule: str
    application: str
    state: Setting


def check_conviction(row: Row, conviction: Conviction, odradek: Odradek, folder: Path) -> None:
    """Judges the application's traffic with each release and checks that only the old release breaks the rule. With the
    old release, the application may fail."""
    assert row.mended is not None
    rules = {}
    for version in (row.old, row.mended):
        if isinstance(conviction.application, Script):
            release = row.installed_driver(version)
        else:
            release = row.installed(version)
        rules[version] = _rules_of_traffic(release, conviction.application, conviction.state, odradek, folder / version)
    old, mended = rules[row.old], rules[row.mended]
    print(f"broken by {row.old}: {sorted(old[BROKEN])}, by {row.mended}: {sorted(mended[BROKEN])}")
    assert {conviction.rule} <= old[BROKEN] - mended[BROKEN] <= {conviction.rule, *conviction.also}
    assert conviction.avoided or conviction.rule in mended[KEPT]


def check_accused(accused: AccusedRelease, odradek: Odradek, recording: Path) -> None:
    client = accused.client
    release = install(client.package, accused.version, PROGRAMS / client.program, client.needs)
    found = _rules_of_traffic(release, accused.application, accused.state, odradek, recording)
    assert (found[BROKEN], accused.rule in found[KEPT]) == (set(), True)


def _rules_of_traffic(
    release: InstalledClient, application: str | Script, state: Setting, odradek: Odradek, recording: Path
) -> dict[str, set[str]]:
    """Returns, by verdict, the rules that the application's clients broke and the rules that they kept."""
    with odradek.cluster() as kafka:
        kafka.record(recording)
        state(kafka)
        if isinstance(application, Script):
            ended = run(release, kafka, environment=application.environment, script=application.lines)
        else:
            ended = run(release, kafka, [application])
        wait_for_departure(kafka)
    assert ended.seen != HANGS, ended.output
    found = judged_clients(recording)
    assert found, f"no client connected: {ended.output[-2000:]}"
    return rules_by_verdict(found)


def check_scenario(row: Row, conviction: ScenarioConviction, folder: Path) -> None:
    """Runs the suite's scenario with each release and checks that only the old release breaks the rule."""
    assert row.mended is not None
    rules = {}
    for version in (row.old, row.mended):
        rules[version] = outcome(row.installed_driver(version).command, folder / version, conviction.rule)
    assert rules[row.old][BROKEN] - rules[row.mended][BROKEN] == {conviction.rule, *conviction.also}
    assert conviction.rule in rules[row.mended][KEPT]
