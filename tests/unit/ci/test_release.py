"""Tests that a release has the same version everywhere, and that its notes are those of CHANGELOG.md."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import odradek

REPOSITORY = Path(__file__).resolve().parents[3]
RELEASE = REPOSITORY / ".ci/release"
COPIES = (
    "docker/Dockerfile",
    "docker/compose.yaml",
    "docker/compose.secure.yaml",
    "docker/devcontainer/odradek/devcontainer-feature.json",
    "README.md",
)
CHANGES = """# Changelog

## [Unreleased]

### Added
- A command that says
  two things ([docs/docker.md](docs/docker.md#health), [KIP-848](https://cwiki.apache.org/KIP-848)).
- Another.

## [0.0.9] - 2026-01-02

### Fixed
- An older one.
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RELEASE), *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"GITHUB_REPOSITORY": "some/fork"}
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("odradek/__init__.py", *COPIES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_every_copy_of_the_version_is_that_of_the_package() -> None:
    assert run(REPOSITORY, "version").stdout == f"{odradek.__version__}\n"
    checked = run(REPOSITORY, "check")
    assert checked.returncode == 0, checked.stderr


def test_the_distribution_takes_its_version_from_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "odradek.__version__"}


def test_the_command_prints_the_version() -> None:
    done = subprocess.run([sys.executable, "-m", "odradek", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"odradek {odradek.__version__} ")


def test_a_new_version_is_written_everywhere(checkout: Path) -> None:
    assert run(checkout, "set", "7.8.9").returncode == 0
    assert run(checkout, "version").stdout == "7.8.9\n"
    assert run(checkout, "image").stdout == "ghcr.io/odradek/odradek:7.8.9\n"
    assert run(checkout, "check", "v7.8.9").returncode == 0
    assert "ghcr.io/odradek/odradek:7.8.9}" in (checkout / "docker/compose.yaml").read_text()
    assert "ARG VERSION=7.8.9\n" in (checkout / "docker/Dockerfile").read_text()


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_another_version_is_named(checkout: Path, name: str) -> None:
    path = checkout / name
    path.write_text(path.read_text().replace(odradek.__version__, "6.6.6", 1))
    checked = run(checkout, "check")
    assert checked.returncode == 1
    assert name in checked.stderr
    assert "6.6.6" in checked.stderr


def test_a_tag_must_match_the_version_and_its_changes_must_be_described(checkout: Path) -> None:
    assert "describes no change" in run(checkout, "check", f"v{odradek.__version__}").stderr
    run(checkout, "set", "7.8.9")
    assert "the tag v7.8.10 is not v7.8.9" in run(checkout, "check", "v7.8.10").stderr


def test_release_notes_are_one_section_with_absolute_links(checkout: Path) -> None:
    run(checkout, "set", "7.8.9")
    assert run(checkout, "notes").stdout == (
        "### Added\n"
        "- A command that says two things "
        "([docs/docker.md](https://github.com/some/fork/blob/v7.8.9/docs/docker.md#health), "
        "[KIP-848](https://cwiki.apache.org/KIP-848)).\n"
        "- Another.\n"
    )
    assert run(checkout, "notes", "0.0.9").stdout == "### Fixed\n- An older one.\n"


def test_an_invalid_or_existing_version_changes_nothing(checkout: Path) -> None:
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    for version, why in (("1.0", "is not a version"), ("v1.0.0", "is not a version"), ("0.0.9", "already")):
        refused = run(checkout, "set", version)
        assert refused.returncode == 1
        assert why in refused.stderr
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


def test_a_version_without_changes_is_refused(checkout: Path) -> None:
    run(checkout, "set", "7.8.9")
    assert "describes no change under Unreleased" in run(checkout, "set", "7.9.0").stderr
    assert "describes no change of 5.5.5" in run(checkout, "notes", "5.5.5").stderr
