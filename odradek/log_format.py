"""Formats log lines as text for people, or as one JSON object per line for programs (`serve --log-format`).

The members of the JSON object keep their names and types from release to release: `time` (ISO 8601, UTC, to the
millisecond), `level` (Python's name), `logger`, `message`, `pid`, and, if an exception was logged, `exception` (the
traceback).
"""

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO, TypeAlias

from odradek.protocol.quoting import shortened

ExceptionInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

TEXT, JSON = "text", "json"
LOG_FORMATS = (TEXT, JSON)
MAX_LINE_LENGTH = 4_000  # maximum number of characters in a message or in one line of a traceback
MAX_LINES = 1_000  # maximum number of lines in a traceback; an error's message alone can have many lines
TEXT_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DEFAULT_LEVEL = "INFO"
# The environment variables used by the apache/kafka image. The second variable contains `logger=LEVEL` pairs, separated
# by commas.
LEVEL_VARIABLE = "KAFKA_LOG4J_ROOT_LOGLEVEL"
LOGGERS_VARIABLE = "KAFKA_LOG4J_LOGGERS"
# Log levels that exist in Kafka but not in Python.
PYTHON_LEVELS = {"TRACE": logging.NOTSET + 1, "FATAL": logging.CRITICAL, "OFF": logging.CRITICAL + 1}


class UnknownLevel(Exception):
    """Raised if the environment names a log level that does not exist."""


class TextLines(logging.Formatter):
    """Formats records like `logging.Formatter`, but shortens overlong messages and tracebacks."""

    def __init__(self) -> None:
        super().__init__(TEXT_LINE)

    def formatMessage(self, record: logging.LogRecord) -> str:  # overrides the standard library's method
        record.message = shortened(record.message, MAX_LINE_LENGTH)
        return super().formatMessage(record)

    def formatException(self, exc_info: ExceptionInfo) -> str:
        return shortened_lines(super().formatException(exc_info))


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json  # imported here because a broker that logs text does not need it
        from datetime import UTC, datetime

        line: dict[str, str | int | None] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": shortened(record.getMessage(), MAX_LINE_LENGTH),
            "pid": record.process,
        }
        if record.exc_info:
            line["exception"] = shortened_lines(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def shortened_lines(traceback: str) -> str:
    """Shortens each line of a traceback. Everything after the first MAX_LINES lines is shortened as if it were one
    line."""
    lines = [shortened(each, MAX_LINE_LENGTH) for each in traceback.split("\n", MAX_LINES)]
    return "\n".join(lines)


def set_up_logging(stream: TextIO, log_format: str, environ: Mapping[str, str]) -> None:
    """Makes all loggers write to `stream`. Raises UnknownLevel if the environment names a level that does not exist."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if log_format == JSON else TextLines())
    _set_level(logging.root, environ.get(LEVEL_VARIABLE, DEFAULT_LEVEL), LEVEL_VARIABLE)
    for pair in environ.get(LOGGERS_VARIABLE, "").split(","):
        name, separator, level = pair.strip().partition("=")
        if separator:
            _set_level(logging.getLogger(name), level, f"{LOGGERS_VARIABLE}: {name}")
    logging.root.addHandler(handler)


def _set_level(logger: logging.Logger, text: str, where: str) -> None:
    level = text.strip().upper()
    try:
        logger.setLevel(PYTHON_LEVELS.get(level, level))
    except ValueError:
        levels = "TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF"
        raise UnknownLevel(f"{where}={level} is not a log level; the levels are {levels}") from None
