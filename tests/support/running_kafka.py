"""Runs Apache Kafka for the duration of a test."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.leash import Leash
from tests.support.oracle import run_kafka

ATTEMPTS = 3
TAKEN = "Address already in use"  # the kit's error if another process has claimed the controller's port in the meantime


@contextmanager
def running_kafka(work: Path, *options: str, version: str = "4.4.0") -> Iterator[str]:
    """Starts Kafka on a free port with a new directory. Yields `host:port`.

    work     folder for the ready file
    options  options of the kit's `kafka start`, e.g. `--set`, `log.segment.bytes=1048576`
    """
    ready = work / "kafka.json"
    for attempt in range(ATTEMPTS):
        try:
            run_kafka("start", "--port", 0, "--ready-file", ready, "--version", version, *options)
            break
        except RuntimeError as error:
            if TAKEN not in str(error) or attempt == ATTEMPTS - 1:
                raise
    facts = json.loads(ready.read_text())
    leash = Leash(facts["pid"])
    try:
        yield str(facts["bootstrap"])
    finally:
        leash.release()
        run_kafka("stop", "--port", facts["port"])
