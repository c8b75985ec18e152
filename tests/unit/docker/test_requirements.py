"""Tests that the image installs the versions pinned in pyproject.toml. `make lock` updates the lock file."""

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PINNED = re.compile(r"^([\w.-]+)==([\w.]+)", re.MULTILINE)


def test_the_lock_file_has_the_pinned_versions_with_hashes() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    pinned = dict(PINNED.findall("\n".join(project["dependencies"])))
    text = (REPOSITORY / "docker/requirements.txt").read_text()
    locked = dict(PINNED.findall(text))
    assert {name: locked.get(name) for name in pinned} == pinned
    for entry in re.split(r"\n(?=\w)", text):
        if PINNED.match(entry):
            assert "--hash=sha256:" in entry


def test_the_builder_is_given_what_the_dockerfile_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", (REPOSITORY / "docker/Dockerfile").read_text(), re.M)
    let_in = {
        line.removeprefix("!").rstrip("/")
        for line in (REPOSITORY / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    sources = {source.rstrip("/") for sources in copied for source in sources.split()}
    assert sources == let_in
