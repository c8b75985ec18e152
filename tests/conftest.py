"""Settings and hooks for all test suites.

Hypothesis has no deadline, because a property must not fail only because the machine is busy. A traceback in a broker's
log fails the test that caused it, whether the broker runs in this process or in its own
(`tests/support/tracebacks.py`).
"""

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

WITHOUT = os.environ.get("WITHOUT", "")  # systems and features that the tests pretend are missing; see tests/elsewhere
IS_LINUX = sys.platform == "linux" and not WITHOUT
IS_POSIX = sys.platform != "win32" and WITHOUT != "windows"
CLIENTS = Path(__file__).parent / "clients"
CLIENTS_END_AT = 0.8  # The files of tests/clients are spread over this fraction of all files.

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
    """Interleaves the files of tests/clients, which mostly wait, with the other files, which mostly compute.

    The last files come from the other suites, so neither kind has the cores to itself. Also skips the tests that need
    Linux or POSIX on other systems.
    """
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
    """Excludes the modules and tests from garbage collection, because they exist until the end. This saves a fifth of
    the CPU time of `make test`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the brokers that were killed by a signal to a failed test's report."""
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
