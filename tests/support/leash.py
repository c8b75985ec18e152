"""Kills Kafka when the test run that started it ends, even if the run itself is killed."""

import subprocess

# Kills Kafka on EOF on stdin. The kernel closes the write end of the pipe even if the test run is killed.
ENDS_KAFKA = 'read -r _; ps -o args= -p "$0" | grep -q kafka.Kafka && kill -9 "$0"'


class Leash:
    """Kills Kafka when the test run ends, unless a test has stopped Kafka and called `release`. Kafka is not a child
    process of the tests, so it would otherwise outlive a killed test run."""

    def __init__(self, pid: int) -> None:
        """Watches for the end of the test run. `pid` is Kafka's process id."""
        words = ["sh", "-c", ENDS_KAFKA, str(pid)]
        # The process has its own session and therefore survives signals to the tests' process group.
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    def release(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
