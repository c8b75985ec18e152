"""For every suite: a property holds or does not, however long a busy machine takes to find out; and a traceback in the
log of a broker, in this process or in its own, fails the test that caused it (`tests/support/tracebacks.py`)."""

import gc
import logging
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import ARE_THE_SAME, examples
from tests.support.tracebacks import MARK, TracebackHandler, taken, unexpected

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


def pytest_collection_finish() -> None:
    """Spares the collector the modules and tests that stay until the end: a fifth of the CPU of `make test`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield
    expected = [words for mark in item.iter_markers(MARK) for words in mark.args]
    bugs = unexpected(taken(), expected)
    if bugs:
        pytest.fail("tracebacks in the log of a broker:\n" + "\n\n".join(bugs), pytrace=False)
