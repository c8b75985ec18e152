"""Ends Kafka when the tests that started it end, however they end."""

import subprocess

# Reads until the other end of its standard input is closed, which the kernel does for a test run that is killed, too.
ENDS_KAFKA = 'read -r _; ps -o args= -p "$0" | grep -q kafka.Kafka && kill -9 "$0"'


class Leash:
    """Kafka is no child of the tests, and would outlive a test run that is killed. Released when a test stops it."""

    def __init__(self, pid: int) -> None:
        """`pid`: of Kafka."""
        words = ["sh", "-c", ENDS_KAFKA, str(pid)]
        # A session of its own, so that a signal to the process group of the tests leaves it alive.
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    def release(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
