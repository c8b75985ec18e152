"""Tests a data directory that is read-only at the start or becomes read-only later.

The broker logs the remedy, loses no acknowledged record, and serves again after the directory has become writable.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.clients.admin import create_topic, new_admin
from tests.clients.speakers import SPEAKERS, wait_for
from tests.support.broker_process import BrokerProcess

RECORD_BYTES = 100_000
SEGMENT_BYTES = 1_048_576  # A segment has room for ten records.
SETTINGS = {"log.segment.bytes": SEGMENT_BYTES, "log.flush.offset.checkpoint.interval.ms": 200}
MAY_WRITE, READ_ONLY = 0o700, 0o500


class ModestBroker(BrokerProcess):
    """A broker that obeys file permissions, even if root runs the tests."""

    def command(self, ready_file: Path) -> list[str]:
        words = super().command(ready_file)
        return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words] if os.geteuid() == 0 else words


class BrokerOnReadOnlyMount(BrokerProcess):
    def command(self, ready_file: Path) -> list[str]:
        mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, str(self.data_dir), *super().command(ready_file)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root, and no setpriv")
    yield tmp_path / "data"
    if (tmp_path / "data").exists():
        allow(tmp_path / "data", MAY_WRITE)


def allow(data_dir: Path, mode: int) -> None:
    for folder, _, _ in os.walk(data_dir):
        os.chmod(folder, mode)


def refusal(broker: BrokerProcess) -> str:
    """Starts the broker, which must fail. Returns the only line that it logs, apart from a warning that uvloop is not
    installed."""
    with pytest.raises(RuntimeError, match="ended with status 1"):
        broker.start()
    (line,) = (each for each in broker.log_text().splitlines() if "uvloop is not installed" not in each)
    return line


@pytest.mark.posix  # Windows has no user ids.
def test_a_broker_without_write_permission_explains_what_to_do(data_dir: Path) -> None:
    data_dir.mkdir()
    allow(data_dir, READ_ONLY)
    message = refusal(ModestBroker(data_dir))
    assert f"the data directory {data_dir} cannot be used: [Errno 13] Permission denied" in message
    assert f"let the user of this process (uid {os.geteuid()}) write to it" in message


def test_a_broker_on_a_read_only_file_system_explains_what_to_do(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("mounts are not allowed here")
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "orders", exact=True)
    os.truncate(tmp_path / "data.stderr", 0)
    message = refusal(BrokerOnReadOnlyMount(tmp_path / "data"))
    assert f"the data directory {tmp_path / 'data'} cannot be used: [Errno 30] Read-only file system" in message
    assert "mount its file system for writing" in message


class Sender:
    """A producer of numbered records of RECORD_BYTES each. It stores the acknowledged values."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[bytes] = []
        self.refused: list[object] = []
        self._sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "delivery.timeout.ms": 2_000, "linger.ms": 0})

    def send_until(self, condition: Callable[[], object], what: str) -> None:
        def sends() -> object:
            value = b"%d" % self._sent
            self._sent += 1
            self._producer.produce("orders", value.ljust(RECORD_BYTES), on_delivery=self._on_delivery(value))
            self._producer.flush(10)
            return condition()

        wait_for(what, sends)

    def _on_delivery(self, value: bytes) -> Callable[[KafkaError | None, object], None]:
        return lambda error, _: self.refused.append(error) if error else self.acknowledged.append(value)


def read(broker: BrokerProcess) -> list[bytes]:
    reader = SPEAKERS["confluent-kafka"]
    _, end = reader.bounds(broker.bootstrap, "orders", 0)
    return [(each.value or b"").strip() for each in reader.read(broker.bootstrap, "orders", end)]


@pytest.mark.slow  # runs in `make test-slow`
@pytest.mark.parametrize("stopped", [False, True], ids=["writable again", "stopped while it is read-only"])
def test_a_directory_that_becomes_read_only_costs_no_acknowledged_record(data_dir: Path, stopped: bool) -> None:
    broker = ModestBroker(data_dir, SETTINGS)
    broker.start()
    create_topic(broker.bootstrap, "orders", exact=True)
    sender = Sender(broker.bootstrap)
    sender.send_until(lambda: len(sender.acknowledged) > 3, "the first records")
    allow(data_dir, READ_ONLY)
    sender.send_until(lambda: sender.refused, "the segment to be full")
    lines = [line for line in broker.log_text().splitlines() if "orders-0 cannot be written" in line]
    assert len(lines) == 1, "once, however often the producer tries"
    assert "Permission denied" in lines[0]
    assert set(sender.acknowledged) <= set(read(broker))
    if stopped:
        with pytest.raises(RuntimeError, match="ended with status 1 after SIGTERM"):
            broker.stop()
        assert "the broker could not stop cleanly" in broker.log_text()
        allow(data_dir, MAY_WRITE)
        broker.start()
    else:
        allow(data_dir, MAY_WRITE)
        before = len(sender.acknowledged)
        sender.send_until(lambda: len(sender.acknowledged) > before, "an acknowledgement")
        assert "orders-0 can be written again" in broker.log_text()
        broker.restart()
    wait_for("the partition to be led", lambda: new_admin(broker.bootstrap).list_topics("orders", timeout=10).topics)
    found = read(broker)
    assert set(sender.acknowledged) <= set(found)
    broker.stop()
