"""Tests two views of the page and takes the screenshots for README.md and docs/. One view shows a commit held by a
test, and the other shows a broker with clients."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, expect

from odradek.testing.sync import Odradek
from tests.page.opened import opened
from tests.support.oracle import REPOSITORY

PICTURES = REPOSITORY / "docs" / "pictures"
START_TIMEOUT_S = 30
HEIGHT = 940  # includes the button that releases the hold


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields a directory with a plain path, because the page shows the data directory's path."""
    with tempfile.TemporaryDirectory(prefix="shop-") as made:
        yield Path(made)


@pytest.fixture
def http_port(folder: Path) -> Iterator[int]:
    """Yields the HTTP port of a broker with clients that write and read."""
    words = [sys.executable, "-m", "odradek", "serve", "--port", "0", "--data-dir", "data"]
    words += ["--ready-file", "ready.json", "--override", "odradek.http.port=0"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (folder / "ready.json").exists():
            assert broker.poll() is None, "the broker ended"
            assert time.monotonic() < deadline, "the broker did not start"
            time.sleep(0.01)
        ready = json.loads((folder / "ready.json").read_text())
        is_over = Event()
        worker = Thread(target=shop, args=(f"{ready['host']}:{ready['port']}", is_over))
        worker.start()
        yield ready["http_port"]
        is_over.set()
        worker.join()
        broker.terminate()


def shop(bootstrap: str, is_over: Event) -> None:
    """Writes orders in transactions and reads them as a group member until `is_over` is set."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "order-service"})
    producer.init_transactions(30)
    settings = {"bootstrap.servers": bootstrap, "group.id": "payments", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    number = 0
    while not is_over.is_set():
        producer.begin_transaction()
        for _ in range(20):
            number += 1
            producer.produce("orders", json.dumps({"order": number, "item": "tea"}), key=f"table-{number % 7}")
        producer.commit_transaction(30)
        consumer.consume(100, timeout=0.1)
    consumer.close()


def test_the_picture_of_a_broker_shows_its_clients(browser: Browser, http_port: int) -> None:
    page = opened(browser, http_port, "overview")
    page.wait_for_timeout(5000)  # The rates take some time to form a line.
    assert "pytest" not in page.inner_text("main")
    page.screenshot(path=PICTURES / "page-overview.png", clip={"x": 0, "y": 0, "width": 1280, "height": 640})
    page.close()


def test_the_picture_of_a_held_commit_shows_the_hold(browser: Browser) -> None:
    """Runs the first example from docs/testing.md. Partition 0 has its marker, and partition 1's marker is held."""
    with Odradek.start() as odradek, odradek.cluster(topics={"orders": 2}) as kafka:
        kafka.fault({"at": "marker", "match": {"topic": "orders", "partition": 1}, "do": {"hold": "second"}})
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "order-service"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", "one tea", partition=0)
        producer.produce("orders", "two scones", partition=1)
        producer.commit_transaction(30)
        kafka.wait(hold="second")
        page = opened(browser, odradek.port, f"transaction?id=order-service&cluster={kafka.id}")
        expect(page.locator("svg.picture .hold").first).to_be_visible()
        page.set_viewport_size({"width": 1280, "height": HEIGHT})
        page.screenshot(path=PICTURES / "page-transaction.png")
        page.close()
        kafka.release("second")
