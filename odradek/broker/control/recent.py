"""The latest warnings and errors of the log, kept for the page."""

import logging
from collections import deque

KEPT = 200


class RecentWarnings(logging.Handler):
    """A handler of the root logger, from `begin` to `end`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: deque[logging.LogRecord] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def begin(self) -> None:
        logging.root.addHandler(self)

    def end(self) -> None:
        logging.root.removeHandler(self)
