"""Tests the log's lines, in the format for people and in the format for programs."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from odradek.log_format import JSON, TEXT, UnknownLevel, set_up_logging


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def said(log_format: str, environ: dict[str, str] | None = None) -> str:
    stream = io.StringIO()
    logging.root.handlers.clear()  # one of the handlers would treat every traceback as a bug
    set_up_logging(stream, log_format, environ or {})
    logger = logging.getLogger("odradek.transactions")
    logger.debug("not shown unless asked for")
    logger.warning('the transaction of "%s" is open for\n%d s', "pay\u00e9", 90)
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        logger.exception("cannot write")
    return stream.getvalue()


def test_text_has_time_level_logger_and_message_in_a_line() -> None:
    first = said(TEXT).splitlines()[0]
    assert first.endswith(' WARNING odradek.transactions: the transaction of "pay\u00e9" is open for')


def test_json_has_one_object_a_line_whatever_the_message_holds() -> None:
    warning, error = (json.loads(line) for line in said(JSON).splitlines())
    assert warning["level"] == "WARNING"
    assert warning["logger"] == "odradek.transactions"
    assert warning["message"] == 'the transaction of "pay\u00e9" is open for\n90 s'
    assert warning.keys() == {"time", "level", "logger", "message", "pid"}
    assert warning["time"].endswith("Z")
    assert error["message"] == "cannot write"
    assert error["exception"].startswith("Traceback")
    assert "No space left on device" in error["exception"]


@pytest.mark.parametrize(("level", "lines"), [("debug", 3), ("TRACE", 3), ("WARN", 2), ("ERROR", 1), ("OFF", 0)])
def test_the_level_is_kafkas_variable(level: str, lines: int) -> None:
    assert len(said(JSON, {"KAFKA_LOG4J_ROOT_LOGLEVEL": level}).splitlines()) == lines


def test_a_level_that_does_not_exist_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownLevel, match="KAFKA_LOG4J_ROOT_LOGLEVEL=LOUD is not a log level"):
        set_up_logging(io.StringIO(), TEXT, {"KAFKA_LOG4J_ROOT_LOGLEVEL": "loud"})


def test_single_loggers_have_levels_of_their_own_in_kafkas_variable() -> None:
    logger = logging.getLogger("odradek.transactions")
    try:
        assert (
            len(said(JSON, {"KAFKA_LOG4J_LOGGERS": "kafka.controller=WARN, odradek.transactions=DEBUG"}).splitlines())
            == 3
        )
    finally:
        logger.setLevel(logging.NOTSET)
    with pytest.raises(UnknownLevel, match="KAFKA_LOG4J_LOGGERS: kafka=LOUD is not a log level"):
        set_up_logging(io.StringIO(), TEXT, {"KAFKA_LOG4J_LOGGERS": "kafka=loud"})


@pytest.mark.parametrize("log_format", [TEXT, JSON])
def test_messages_and_tracebacks_that_quote_too_much_are_shortened(log_format: str) -> None:
    stream = io.StringIO()
    logging.root.handlers.clear()
    set_up_logging(stream, log_format, {})
    logger = logging.getLogger("odradek.transactions")
    logger.warning("no such topic: %s (it is missing)", "\\" * 100_000)
    try:
        raise ValueError("line\n" * 100_000 + "\\" * 100_000)
    except ValueError:
        logger.exception("a bug")
    written = stream.getvalue()
    assert len(written) < 50_000
    assert "(it is missing)" in written
    assert "characters left out" in written
