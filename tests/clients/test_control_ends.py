"""Tests how control calls end if their cluster is deleted, is restarted or crashes while they are running. Also tests
other refused calls (docs/testing.md)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse
from queue import SimpleQueue
from typing import Any

import pytest

from odradek.testing.sync import Cluster, Odradek, Refused

CONDITIONS: tuple[dict[str, Any], ...] = (
    {"transaction": "t", "state": "Ongoing"},
    {"group": "g", "state": "Stable"},
    {"topic": "orders", "log_end_offset": 1},
    {"fault": "rule", "hits": 1},
    {"hold": "held"},
    {"client": "nobody"},
    {"member": "nobody", "group": "g", "owns": ["orders-0"]},
)


def error_during(call: Callable[[], object], change: Callable[[], object]) -> Exception:
    """Runs `call` in a thread, and `change` while the call is running. Returns the exception that `call` raises."""
    outcomes: SimpleQueue[Exception] = SimpleQueue()

    def run() -> None:
        try:
            call()
        except Exception as error:
            outcomes.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    change()
    found = outcomes.get(timeout=20)
    thread.join()
    return found


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_wait_fails_when_its_cluster_is_deleted(odradek: Odradek, condition: dict[str, Any]) -> None:
    kafka = odradek.cluster()
    kafka.fault({"name": "rule", "do": {"observe": True}})
    outcomes = error_during(lambda: kafka.wait(timeout_s=15, **condition), kafka.delete)
    assert isinstance(outcomes, Refused)
    assert outcomes.status == 404
    assert outcomes.detail in (
        f"cluster {kafka.id} no longer exists: it was deleted",
        f"there is no cluster {kafka.id}",  # The wait may have started only after the deletion.
    )


def test_a_wait_fails_when_the_lease_of_its_cluster_ends(odradek: Odradek) -> None:
    kafka = odradek.cluster(ttl_s=1)
    with pytest.raises(Refused, match="no longer exists: its lease of 1 s has ended") as refused:
        kafka.wait(hold="nothing", timeout_s=15)
    assert refused.value.status == 404


def test_a_wait_goes_on_while_its_cluster_restarts(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        errors: list[Exception] = []

        def wait() -> None:
            try:
                kafka.wait(transaction="t", state="Ongoing")
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        for _ in range(3):
            kafka.restart()
        kafka.preset("open-transaction")
        thread.join()
        assert errors == []


def test_a_wait_fails_when_its_cluster_has_crashed(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        kafka.crash()
        with pytest.raises(Refused, match="has crashed: restart it first"):
            kafka.wait(transaction="t", state="Ongoing")


def test_no_call_starts_a_cluster_again_that_is_deleted_meanwhile(odradek: Odradek) -> None:
    for _ in range(5):
        kafka = odradek.cluster()
        threads = [threading.Thread(target=refused_or_not, args=(call,)) for call in (kafka.restart, kafka.delete)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused_or_not(kafka.delete)
        assert kafka.id not in [each["id"] for each in odradek.call("GET", "/clusters")[1]]
        with pytest.raises(OSError, match="refused"):
            HTTPConnection(kafka.bootstrap, timeout=5).connect()


def refused_or_not(call: Callable[[], object]) -> None:
    try:
        call()
    except Refused as refused:
        assert refused.status == 404  # noqa: PT017


def test_a_name_that_no_rule_holds_is_refused_with_the_nearest(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        with pytest.raises(Refused, match="no rule has a hold named second") as refused:
            kafka.release("second")
        assert (refused.value.status, refused.value.problem["field"]) == (404, "name")
        kafka.fault({"at": "marker", "do": {"hold": "second"}, "unused": "ok"})
        assert kafka.release("second") == 0
        with pytest.raises(Refused, match="did you mean second"):
            kafka.release("secand")


def send_request(odradek: Odradek, method: str, path: str, body: str) -> tuple[HTTPResponse, dict[str, Any]]:
    connection = HTTPConnection(odradek.host, odradek.port, timeout=20)
    connection.request(method, path, body)
    response = connection.getresponse()
    document: dict[str, Any] = json.loads(response.read())
    connection.close()
    return response, document


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/control/v1/faults", json.dumps([{"name": "x" * 2_000_000}]), 413, "larger than 1 MiB"),
        ("GET", "/control/v1/fautls", "", 404, "there is no such call"),
        ("PUT", "/control/v1/faults", "", 405, "the path does not support this method"),
    ],
)
def test_a_request_that_the_http_server_refuses_gets_a_problem_document(
    odradek: Odradek, method: str, path: str, body: str, status: int, words: str
) -> None:
    response, document = send_request(odradek, method, path, body)
    assert response.status == document["status"] == status
    assert response.getheader("Content-Type", "").startswith("application/problem+json")
    assert document["type"] == "about:blank"
    assert words in document["detail"]


def test_errors_outside_the_control_interface_keep_their_form(odradek: Odradek, kafka: Cluster) -> None:
    connection = HTTPConnection(odradek.host, odradek.port, timeout=20)
    connection.request("GET", "/nothing")
    response = connection.getresponse()
    assert response.status == 404
    assert "problem" not in response.getheader("Content-Type", "")
    connection.close()
