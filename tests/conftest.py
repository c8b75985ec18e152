"""For every suite: a property holds or does not, however long a busy machine takes to find out; and a traceback in the
log of a broker, in this process or in its own, fails the test that caused it (`tests/support/tracebacks.py`)."""

import gc
import logging
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import ARE_THE_SAME, examples
from tests.support.killed_brokers import killed
from tests.support.tracebacks import MARK, TracebackHandler, taken, unexpected

WITHOUT = os.environ.get("WITHOUT", "")  # see tests/elsewhere
IS_LINUX = sys.platform == "linux" and not WITHOUT
IS_POSIX = sys.platform != "win32" and WITHOUT != "windows"
CLIENTS = Path(__file__).parent / "clients"
CLIENTS_END_AT = 0.8  # of all files

settings.register_profile(
    "unhurried",
    deadline=None,
    derandomize=ARE_THE_SAME,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    logging.root.addHandler(TracebackHandler())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mixes the files of tests/clients, which wait, with the others, which compute, and lets none of them be the last:
    then neither kind is left alone with the cores."""
    files: dict[bool, dict[Path, None]] = {True: {}, False: {}}
    for item in items:
        files[CLIENTS in item.path.parents][item.path] = None
    place = {
        path: number / len(of_a_kind) * (CLIENTS_END_AT if waits else 1)
        for waits, of_a_kind in files.items()
        for number, path in enumerate(of_a_kind)
    }
    items.sort(key=lambda item: place[item.path])
    for item in items:
        if not IS_LINUX and item.get_closest_marker("linux") is not None:
            item.add_marker(pytest.mark.skip(reason="holds on Linux only"))
        if not IS_POSIX and item.get_closest_marker("posix") is not None:
            item.add_marker(pytest.mark.skip(reason="holds on Linux and macOS only"))


def pytest_collection_finish() -> None:
    """Spares the collector the modules and tests that stay until the end: a fifth of the CPU of `make test`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of a failed test that its broker was killed."""
    report = yield
    if report.failed and (lines := killed()):
        report.sections.append(("Killed brokers", "\n".join(lines)))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield
    expected = [words for mark in item.iter_markers(MARK) for words in mark.args]
    bugs = unexpected(taken(), expected)
    if bugs:
        pytest.fail("tracebacks in the log of a broker:\n" + "\n\n".join(bugs), pytrace=False)
