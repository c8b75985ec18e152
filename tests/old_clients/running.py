"""A small application run once with one release of a client, against a fresh cluster in a rare state."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from threading import Thread
from typing import TypeAlias

from odradek.testing.sync import Cluster
from tests.judge_history.installing import Installed

PATIENCE_S = 45  # an application that has not ended by then hangs
Setting: TypeAlias = Callable[[Cluster], None]


def seen_by(
    release: Installed,
    function: str,
    kafka: Cluster,
    meanwhile: Setting | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Returns the last line that the application prints, or how it ended without one.

    meanwhile    what happens to the cluster while the application runs, such as the end of a node
    environment  of the application, besides that of this process
    """
    failures: list[BaseException] = []

    def act() -> None:
        assert meanwhile is not None
        try:
            meanwhile(kafka)
        except BaseException as error:
            failures.append(error)

    whole = {**os.environ, **release.environment, **(environment or {}), "ODRADEK_BOOTSTRAP": kafka.bootstrap}
    command = [*release.words, function]
    process = subprocess.Popen(command, env=whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    actor = Thread(target=act) if meanwhile is not None else None
    if actor is not None:
        actor.start()
    try:
        told, complaint = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "hangs"
    finally:
        if actor is not None:
            actor.join()
    if failures:
        raise failures[0]
    if process.returncode < 0:
        return f"dies of {signal.Signals(-process.returncode).name}"
    lines = told.strip().splitlines() or complaint.strip().splitlines() or [""]
    return lines[-1]
