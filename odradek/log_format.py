"""Formats of a line of the log: text for people, or one JSON object for programs (`serve --log-format`).

The members of an object keep their names and types between releases: `time` (ISO 8601, UTC, to the millisecond),
`level` (Python's name), `logger`, `message`, `pid`, and `exception` (the traceback) where there was one.
"""

import logging
from collections.abc import Mapping
from typing import TextIO

TEXT, JSON = "text", "json"
LOG_FORMATS = (TEXT, JSON)
TEXT_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DEFAULT_LEVEL = "INFO"
# As the apache/kafka image calls them; the second holds `logger=LEVEL` pairs, separated by commas.
LEVEL_VARIABLE = "KAFKA_LOG4J_ROOT_LOGLEVEL"
LOGGERS_VARIABLE = "KAFKA_LOG4J_LOGGERS"
# Kafka's names of levels that Python lacks.
PYTHON_LEVELS = {"TRACE": logging.NOTSET + 1, "FATAL": logging.CRITICAL, "OFF": logging.CRITICAL + 1}


class UnknownLevel(Exception):
    """The environment asks for a level of the log that does not exist."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json  # not needed by a broker that logs text
        from datetime import UTC, datetime

        line: dict[str, str | int | None] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(stream: TextIO, log_format: str, environ: Mapping[str, str]) -> None:
    """Sends what all loggers say to `stream`. Raises UnknownLevel."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if log_format == JSON else logging.Formatter(TEXT_LINE))
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
        raise UnknownLevel(f"{where}={level} is not a level of the log; there are {levels}") from None
