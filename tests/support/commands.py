"""Runs `odradek` commands in this process, because starting a process would take longer than most commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper

from odradek.tools.commands.tree import run


def command(
    *words: str, stdin: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `odradek` with the given arguments, in this process's environment plus `environment`."""
    output, errors = _stream(), _stream()
    usual, sys.stdin = sys.stdin, _stream(stdin)
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            status = run(words, {**os.environ, **(environment or {})})
    finally:
        sys.stdin = usual
    return subprocess.CompletedProcess(words, status, _text(output), _text(errors))


def _stream(text: str = "") -> TextIOWrapper:
    return TextIOWrapper(BytesIO(text.encode()), encoding="utf-8", newline="", write_through=True)


def _text(stream: TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, BytesIO)
    return buffer.getvalue().decode()
