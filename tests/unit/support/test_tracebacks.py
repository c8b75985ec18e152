"""Tests that a traceback in a broker's log is found, wherever it is logged. A test that is marked as causing a
traceback fails if the traceback does not appear."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.tracebacks import tracebacks_in, unexpected

LOGGED = "ERROR odradek.x: bug\nTraceback (most recent call last):\n  File\n    raise\nKeyError: 'a'\nINFO next\n"


@pytest.mark.traceback("ValueError: on purpose")
def test_an_exception_that_the_broker_logs_in_this_process_is_seen() -> None:
    try:
        raise ValueError("on purpose")
    except ValueError:
        logging.getLogger("odradek.x").exception("failed")


@pytest.mark.traceback("ValueError: in a callback")
async def test_what_the_loops_exception_handler_is_told_is_seen() -> None:
    def fail() -> None:
        raise ValueError("in a callback")

    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)


class FailingBroker(BrokerProcess):
    def command(self, ready_file: Path) -> list[str]:
        return [sys.executable, "-c", "raise ValueError('in its own process')"]


@pytest.mark.traceback("ValueError: in its own process")
def test_what_a_broker_in_its_own_process_writes_is_seen(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with status 1"):
        FailingBroker(tmp_path / "data").start()


def test_the_traceback_is_told_with_what_was_being_done() -> None:
    assert tracebacks_in(LOGGED) == [LOGGED.removesuffix("\nINFO next\n")]
    assert tracebacks_in("INFO odradek: all is well\n") == []


def test_a_traceback_in_a_line_of_json_is_seen() -> None:
    line = json.dumps({"level": "ERROR", "exception": "Traceback (most recent call last):\n  File\nKeyError: 'a'"})
    assert tracebacks_in(line) == [line]


def test_one_that_is_not_announced_fails_and_so_does_one_that_did_not_come() -> None:
    assert unexpected([LOGGED], []) == [LOGGED]
    assert unexpected([LOGGED], ["KeyError: 'a'"]) == []
    assert unexpected([], ["KeyError"]) == ["no traceback with 'KeyError'"]
    assert unexpected([LOGGED], ["OSError"]) == [LOGGED, "no traceback with 'OSError'"]
