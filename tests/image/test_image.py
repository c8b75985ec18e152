"""Tests the image as an engine would run it: its contents, how it starts and stops, its volume, and its users."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.image.clients import consume, produce
from tests.image.conftest import Run
from tests.image.machine import DATA, Image
from tests.support.broker_process import BrokerProcess
from tests.support.oracle import REPOSITORY

MAX_BYTES_ABOVE_BASE = 120_000_000
STOPS_WITHIN_S = 2.0


def size_of(root: Path) -> int:
    return sum(
        (Path(folder) / name).lstat().st_size for folder, _, names in os.walk(root, followlinks=False) for name in names
    )


def test_the_image_has_the_metadata_that_engines_and_registries_require(image: Image) -> None:
    assert image.user != 0
    assert image.volumes == (DATA,)
    assert image.stop_signal == "SIGTERM"
    # In the exec form, no shell runs between the engine and the broker.
    assert image.entry_point[0] == "/opt/odradek/bin/python"
    for name in ("title", "description", "licenses", "version", "revision"):
        assert image.labels[f"org.opencontainers.image.{name}"]


def test_the_image_adds_at_most_120_mb_to_its_base(image: Image) -> None:
    added = size_of(image.root) - size_of(Path(os.environ["IMAGE_BASE_ROOT"]))
    print(f"{added / 1e6:.0f} MB beyond the base")
    assert added <= MAX_BYTES_ABOVE_BASE


def test_bytecode_of_everything_is_in_the_image(image: Image) -> None:
    packages = next((image.root / "opt/odradek/lib").glob("python3*/site-packages"))
    sources = {path for path in packages.rglob("*.py") if path.stat().st_size}
    compiled = {path.parent.parent / f"{path.name.partition('.')[0]}.py" for path in packages.rglob("*.pyc")}
    assert not [path for path in sources - compiled if "odradek" in path.parts[-2:]]
    assert len(sources & compiled) > 500


def test_the_licences_of_everything_in_the_image_are_in_it(image: Image) -> None:
    own = (image.root / "opt/odradek/LICENCES").read_text().splitlines()
    assert {"construct", "aiohttp", "crc32c"} <= {line.split()[0].lower() for line in own if ": " in line}
    status = (image.root / "var/lib/dpkg/status").read_text()
    packages = {line.removeprefix("Package: ") for line in status.splitlines() if line.startswith("Package: ")}
    listed = (image.root / "opt/odradek/LICENCES.debian").read_text().splitlines()
    assert packages == {line.split()[0] for line in listed}
    for package in packages:
        assert (image.root / "usr/share/doc" / package / "copyright").exists(), package


def test_the_container_becomes_healthy_accepts_records_and_stops_in_time(start: Run, tmp_path: Path) -> None:
    broker = start(volume=tmp_path / "volume")
    broker.wait_for("accepts Kafka clients")
    produce("localhost:9092", "orders", ["1"])
    print(f"first record acknowledged {(time.monotonic() - broker.started_at) * 1000:.0f} ms after the start")
    broker.wait_until_healthy()
    assert broker.ready_page() == 200
    assert consume("localhost:9092", "orders", 1) == ["1"]
    assert broker.stop() == 0
    assert "the broker has stopped; all acknowledged records are on the disk" in broker.log


def test_the_container_stops_within_two_seconds_of_sigterm(start: Run, tmp_path: Path) -> None:
    """Makes up to eight attempts, because the machine may be busy. At least one attempt must be fast enough."""
    took_s = []
    for _ in range(8):
        broker = start(volume=tmp_path / "volume")
        broker.wait_for("accepts Kafka clients")
        produce("localhost:9092", "orders", ["1"])
        begin = time.monotonic()
        assert broker.stop() == 0
        took_s.append(time.monotonic() - begin)
        broker.remove()
        if took_s[-1] <= STOPS_WITHIN_S:
            break
    print(f"stopped {took_s[-1] * 1000:.0f} ms after SIGTERM")
    assert min(took_s) <= STOPS_WITHIN_S


def test_sigterm_during_the_start_ends_the_container_too(start: Run) -> None:
    """The kernel applies no default action for signals to process 1, so the entry point must handle them from its first
    line."""
    broker = start()
    while not Path(f"/proc/{broker.pid}/cmdline").read_bytes().startswith(b"/opt/odradek"):
        time.sleep(0.001)
    deadline = time.monotonic() + 30
    while "accepts" not in broker.log and time.monotonic() < deadline:
        broker.signal("SIGTERM")
        time.sleep(0.01)
        if not broker.is_running():
            break
    assert not broker.is_running()


def test_a_container_that_starts_is_not_healthy_yet(start: Run) -> None:
    sleeping = start("sh", "-c", "sleep 60")
    checked = sleeping.execute(*sleeping.image.health_check)
    assert checked.returncode == 1
    assert "Connection refused" in checked.stderr


def test_the_volume_survives_a_kill_of_process_1(start: Run, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    for round_ in range(3):
        broker = start(volume=volume)
        broker.wait_for("accepts Kafka clients")
        produce("localhost:9092", "orders", [str(round_)])
        broker.kill()
        broker.remove()
    broker = start(volume=volume)
    broker.wait_until_healthy()
    assert consume("localhost:9092", "orders", 3) == ["0", "1", "2"]


def test_a_directory_of_the_previous_commit_is_taken_over(start: Run, tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD~1", "odradek"], cwd=REPOSITORY, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("this clone has no previous commit")
    subprocess.run(["tar", "x", "-C", str(before)], input=archive.stdout, check=True)
    volume = tmp_path / "volume"

    class PreviousBroker(BrokerProcess):
        def command(self, ready_file: Path) -> list[str]:
            script = f"import sys; sys.path.insert(0, {str(before)!r}); from odradek.cli import main; sys.exit(main())"
            return [sys.executable, "-c", script, *super().command(ready_file)[3:]]

    with PreviousBroker(volume) as old:
        produce(old.bootstrap, "orders", ["1", "2"])
        old.kill9()
    for path in (volume, *volume.rglob("*")):
        os.chown(path, 1000, 0)
    broker = start(volume=volume)
    broker.wait_until_healthy()
    assert consume("localhost:9092", "orders", 2) == ["1", "2"]
    produce("localhost:9092", "orders", ["3"])
    assert consume("localhost:9092", "orders", 3) == ["1", "2", "3"]


def test_only_the_volume_has_to_be_writable(start: Run, tmp_path: Path) -> None:
    broker = start(volume=tmp_path / "volume", is_read_only=True)
    broker.wait_until_healthy()
    produce("localhost:9092", "orders", ["1"])
    assert broker.stop() == 0


@pytest.mark.parametrize("user", ["123456:0", "1234:5678"])
def test_the_container_runs_as_any_user(start: Run, tmp_path: Path, user: str) -> None:
    broker = start(volume=tmp_path / "volume", user=user)
    broker.wait_until_healthy()
    produce("localhost:9092", "orders", ["1"])
    assert Path(f"/proc/{broker.pid}/status").read_text().split("Uid:\t")[1].split()[0] == user.partition(":")[0]
    assert broker.stop() == 0


def test_a_volume_without_write_permission_is_explained(start: Run, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    broker = start(volume=volume)
    assert broker.wait() == 1
    assert f"the data directory {DATA} cannot be used: " in broker.log
    assert "Permission denied" in broker.log


def test_words_after_the_image_are_options_commands_or_programs(start: Run) -> None:
    broker = start("--override", "num.partitions=3")
    broker.wait_until_healthy()
    listed = broker.execute("odradek", "configs", "describe", "--broker", "1", "--all", "--json")
    assert {one["name"]: one["value"] for one in json.loads(listed.stdout)}["num.partitions"] == "3"
    neighbour = {"address": "172.31.0.3", "ports": ()}
    topics = start("topics", "create", "orders", "-b", "172.31.0.2:9092", name="one", **neighbour)
    assert topics.wait() == 0
    topics.remove()
    listed = broker.execute("odradek", "topics", "list")
    assert listed.stdout.split() == ["orders"]
    program = start("sh", "-c", "echo $0 is process $$", name="two", **neighbour)
    assert program.wait() == 0
    assert program.log == "sh is process 1\n"
