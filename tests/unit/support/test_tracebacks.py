"""Tests that a traceback in a broker's log is found, wherever it is logged. A test marked as causing a traceback fails
if the traceback does not appear."""

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
async def test_an_exception_in_a_callback_of_the_loop_is_detected() -> None:
    def fail() -> None:
        raise ValueError("in a callback")

    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)


class FailingBroker(BrokerProcess):
    def command(self, ready_file: Path) -> list[str]:
        return [sys.executable, "-c", "raise ValueError('in its own process')"]


@pytest.mark.traceback("ValueError: in its own process")
def test_a_traceback_of_a_broker_in_another_process_is_detected(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with status 1"):
        FailingBroker(tmp_path / "data").start()


def test_a_traceback_is_found_with_its_log_message() -> None:
    assert tracebacks_in(LOGGED) == [LOGGED.removesuffix("\nINFO next\n")]
    assert tracebacks_in("INFO odradek: all is well\n") == []


def test_a_traceback_in_a_line_of_json_is_seen() -> None:
    line = json.dumps({"level": "ERROR", "exception": "Traceback (most recent call last):\n  File\nKeyError: 'a'"})
    assert tracebacks_in(line) == [line]


def test_unexpected_and_missing_tracebacks_both_fail() -> None:
    assert unexpected([LOGGED], []) == [LOGGED]
    assert unexpected([LOGGED], ["KeyError: 'a'"]) == []
    assert unexpected([], ["KeyError"]) == ["no traceback with 'KeyError'"]
    assert unexpected([LOGGED], ["OSError"]) == [LOGGED, "no traceback with 'OSError'"]
