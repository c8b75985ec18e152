"""Tests that an installation or a build that cannot succeed names the missing requirement at its start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.oracle import REPOSITORY

OLDER = next(map(str, (Path.home() / ".pyenv/versions").glob("3.10.*/bin/python3.10")), None)


@pytest.mark.skipif(OLDER is None, reason="needs Python 3.10")
def test_an_older_python_prints_the_required_version() -> None:
    assert OLDER is not None
    done = subprocess.run(
        [OLDER, "-E", "setup.py", "--version"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("odradek needs Python 3.11 or later. This is Python 3.10.")
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_compiler_is_named_before_anything_is_compiled() -> None:
    done = subprocess.run(
        [".ci/compiled", "build", sys.executable],
        cwd=REPOSITORY,
        env={**os.environ, "CC": "no-such-compiler -O2"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("make compile needs a C compiler, and there is no no-such-compiler. Install gcc")
