"""Tests that HTTP responses that people read with curl end with a newline, so the shell's next prompt starts on its own
line."""

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from odradek.control_calls.table import BASE, CALLS
from odradek.testing.sync import Odradek
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no HTTP port")

PAGES = (
    ("GET", "/healthz", 200),
    ("GET", "/readyz", 200),
    ("GET", "/api/overview", 200),
    ("GET", "/api/topics", 200),
    ("GET", "/api/topic", 400),
    ("GET", "/api/topic?name=missing", 404),
    ("GET", "/api/nonsense", 404),
    ("GET", "/api/actions", 200),
    ("POST", "/api/actions/create-topic", 403),
    ("GET", "/download?topic=missing", 404),
    ("GET", "/live/nonsense", 404),
    ("GET", "/records", 404),
    ("GET", "/api/topics/missing/records", 404),
    ("POST", "/api/topics/orders/records", 403),
    ("GET", "/nonsense", 404),
    ("DELETE", "/healthz", 405),
)


def answer(port: int, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Sends a request and returns the status and the body. Fails unless Content-Length is the length of the body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        body = response.read()
        assert response.headers["Content-Length"] == str(len(body))
        return response.status, body
    finally:
        connection.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        assert isinstance(started, BrokerProcess)
        yield started.ready["http_port"]


@pytest.fixture(scope="module")
def control() -> Iterator[tuple[int, str]]:
    with Odradek.start() as odradek, odradek.cluster() as cluster:
        yield odradek.port, cluster.id


@pytest.mark.parametrize(("method", "path", "status"), PAGES, ids=lambda each: str(each))
def test_an_answer_of_the_http_port_is_one_line(broker: int, method: str, path: str, status: int) -> None:
    found, body = answer(broker, method, path)
    assert found == status
    assert body.endswith(b"\n")
    assert body.count(b"\n") == 1


def test_a_refused_request_is_one_line(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"odradek.http.token": "secret"}) as started:
        assert isinstance(started, BrokerProcess)
        status, body = answer(started.ready["http_port"], "GET", "/api/topics")
    assert status == 401
    assert body.endswith(b"}\n")


def without_required_fields() -> list[str]:
    """Returns the paths of all GET calls in the control interface that need no parameters except a cluster id."""
    return [
        path
        for call in CALLS
        if call.method == "GET" and call.answer is not None and not any(each.is_required for each in call.query)
        for path, _ in call.paths()
        if "{" not in path.replace("/clusters/{id}", "")
    ]


@pytest.mark.parametrize("path", without_required_fields())
def test_an_answer_of_the_control_interface_is_one_line(control: tuple[int, str], path: str) -> None:
    status, body = answer(control[0], "GET", BASE + path.replace("{id}", control[1]))
    assert status == (409 if path == "/requests" else 200)  # The default cluster does not store requests.
    assert body.endswith((b"}\n", b"]\n"))
    assert body.count(b"\n") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nonsense", 404),
        ("PUT", "/clusters", 405),
        ("POST", "/faults", 400),
        ("GET", "/clusters/missing/clock", 404),
        ("POST", "/clock/advance", 400),
    ],
)
def test_a_problem_of_the_control_interface_is_one_line(
    control: tuple[int, str], method: str, path: str, status: int
) -> None:
    found, body = answer(control[0], method, BASE + path)
    assert found == status
    assert body.endswith(b"}\n")
