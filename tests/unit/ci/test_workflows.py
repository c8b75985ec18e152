"""Tests that the GitHub Actions workflows pin the code that they use and have no rights that they do not need."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: (?:[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml)$")
SCRIPT = re.compile(r"(?<![\w/])\.ci/\w+")
TARGET = re.compile(r"^make ([\w-]+)", re.MULTILINE)
MAY_WRITE = {
    ("docs", "deploy"): {"pages", "id-token"},
    ("release", "pypi"): {"id-token"},
    ("release", "image"): {"packages", "id-token", "attestations"},
    ("release", "feature"): {"packages"},
    ("release", "notes"): {"contents"},
}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "run" in step]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: str(path.stem))
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_there_are_three_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "test"]


def test_every_action_is_pinned_by_hash_and_names_its_version(path: Path) -> None:
    used = [line.strip().removeprefix("- ") for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not PINNED.search(line)] == []


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    pins = set(re.findall(r"uses: ([\w./-]+)@(\w{40}) # (\S+)", text))
    assert len(pins) == len({name for name, _, _ in pins})


def test_only_the_jobs_that_publish_may_write(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        writes = {right for right, how in job.get("permissions", {}).items() if how == "write"}
        assert writes == MAY_WRITE.get((path.stem, name), set()), name


def test_no_workflow_reads_a_secret(path: Path) -> None:
    assert "secrets." not in path.read_text()


def test_no_command_contains_an_expression(path: Path) -> None:
    assert [command for command in commands(read(path)) if "${{" in command] == []


def test_every_script_and_target_of_the_workflows_exists(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for command in commands(read(path)):
        assert set(TARGET.findall(command)) <= targets, command
        for script in SCRIPT.findall(command):
            assert list(REPOSITORY.glob(f"{script}*")), command


def test_the_tests_run_on_every_python_that_the_distribution_names() -> None:
    matrix = read(REPOSITORY / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (REPOSITORY / "pyproject.toml").read_text())
    assert matrix["python"] == named
    assert {"-arm" in runner for runner in matrix["runner"]} == {True, False}
