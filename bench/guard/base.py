"""Finds the commit that the guard compares with and unpacks its code."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.oracle import REPOSITORY

PACKAGE = "odradek"  # contains all code that runs in a broker


class NoBase(Exception):
    """There is no code to compare with. The message contains the reason."""


@dataclass(frozen=True, slots=True)
class Base:
    """The commit that the guard compares with, identified by its full hash."""

    commit: str
    subject: str

    @property
    def title(self) -> str:
        return f"{self.commit[:9]} ({self.subject})"


def find_base(revision: str | None, repository: Path = REPOSITORY) -> Base:
    """Returns the parent of HEAD, or the commit where HEAD branched off `revision`, which is a branch or a commit.

    If `revision` is HEAD, uncommitted changes are compared with the last commit. Raises NoBase if the commit does not
    exist or its code is the same.
    """
    if revision is None:
        try:
            commit = git(repository, "rev-parse", "--verify", "--quiet", "HEAD^")
        except NoBase as reason:
            raise NoBase(f"HEAD has no parent here (a shallow clone, or no repository){reason}") from None
    else:
        commit = git(repository, "merge-base", "HEAD", revision)
    commit, subject = commit.strip(), git(repository, "log", "-1", "--format=%s", commit.strip()).strip()
    if not differs(repository, commit):
        raise NoBase(f"no file of {PACKAGE}/ has changed since {commit[:9]} ({subject})")
    return Base(commit, subject)


def differs(repository: Path, commit: str) -> bool:
    """Returns whether the code in the working tree differs from the commit's."""
    changed = git(repository, "diff", "--name-only", commit, "--", PACKAGE)
    return any(name.endswith((".py", ".json")) for name in changed.splitlines())


def unpack(base: Base, into: Path, repository: Path = REPOSITORY) -> Path:
    """Unpacks the package as of the base commit into the directory `into` and returns `into`."""
    archive = git_bytes(repository, "archive", "--format=tar", base.commit, PACKAGE)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return into


def git(repository: Path, *words: str) -> str:
    return git_bytes(repository, *words).decode()


def git_bytes(repository: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise NoBase("git is not installed") from None
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()
        raise NoBase(f"`git {' '.join(words)}` failed{': ' if message else ''}{message}")
    return done.stdout
