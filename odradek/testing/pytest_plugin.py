"""Fixtures of pytest: `kafka`, a fresh cluster for each test, and `odradek`, the process that all of them share.

    def test_a_commit_that_is_refused_is_repeated(kafka):
        kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3})
        pay(kafka.bootstrap)

pytest finds them by the entry point of the package. A process is started when a test first asks for it, once for all
workers of pytest-xdist. The report of a failed test ends with the last exchanges of its cluster. Every run of pytest
where the package is installed imports this module, so all else is imported by what first needs it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.sync import Cluster, Json, Odradek

MARK = "kafka"  # name of the marker and of the fixture
ASYNC_MARK = "async_kafka"
FUNCTION = "function"  # scope of a fixture
OPTION = "--odradek"
CONTROL = "ODRADEK_CONTROL"  # what the option is, for a whole run in several languages
TOKEN = "ODRADEK_TOKEN"
ADDRESS = "odradek_address"  # in what pytest-xdist tells a worker
SHOWN = 20  # exchanges at the end of a report
LINE = 400  # characters of one
SHARE = pytest.StashKey["Share"]()
CLUSTER = pytest.StashKey["Cluster"]()
HAS_FAILED = pytest.StashKey[bool]()

Address = tuple[str, int]


class Share:
    """Socket of the process that runs pytest, at which its workers ask for the control interface: a line of JSON.

    Whoever asks first has it started; it ends with this process's tests.
    """

    def __init__(self, start: Callable[[], Odradek]) -> None:
        self._start = start
        self._started: Odradek | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # `accept` of the thread returns
        self._listener.close()
        self._thread.join()  # it may be starting the process
        if self._started is not None:
            self._started.stop()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.sendall(json.dumps(self._told()).encode())

    def _told(self) -> Mapping[str, Json]:
        try:
            if self._started is None:
                self._started = self._start()
        except RuntimeError as error:
            return {"error": str(error)}
        return {"host": self._started.host, "port": self._started.port}


def shared(port: int) -> Odradek:
    """Raises RuntimeError if it did not start."""
    from odradek.testing.sync import Odradek

    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answer:
        told = json.loads(answer.read())
    if "error" in told:
        raise RuntimeError(told["error"])
    return Odradek(told["host"], told["port"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("odradek", "Odradek, a Kafka broker").addoption(
        OPTION,
        metavar="HOST:PORT",
        help=f"the HTTP port of a running `odradek serve --control`; default: ${CONTROL}, without which one is started."
        f" ${TOKEN} is the token that it asks for",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(**options): of the cluster of fixture `kafka`: settings, nodes, topics, ttl_s, preset, emulate,"
        " listeners, users",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist where the process is that all share."""
    from odradek.testing.sync import Odradek

    config: pytest.Config = node.config
    if SHARE not in config.stash:
        config.stash[SHARE] = Share(Odradek.start)
    node.workerinput[ADDRESS] = config.stash[SHARE].port


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARE in config.stash:
        config.stash[SHARE].close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Has the cluster set up before the test's other fixtures of function scope, so that it is torn down after them.

    A fixture that closes consumers need not name the cluster, and a consumer that is closed without its cluster waits
    for a coordinator that is gone.
    """
    names: list[str] = getattr(item, "fixturenames", [])
    if MARK not in names:
        return
    definitions: Mapping[str, Sequence[Any]] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    if not any(each.func.__module__ == __name__ for each in definitions[MARK]):
        return  # the project's own fixture has the same name
    ours = [name for name in (MARK, ASYNC_MARK) if name in names]
    others = [name for name in names if name not in ours]
    scopes = [definitions[name][-1].scope if name in definitions else None for name in others]
    place = scopes.index(FUNCTION) if FUNCTION in scopes else len(others)
    names[:] = [*others[:place], *ours, *others[place:]]


@pytest.fixture(scope="session")
def odradek(request: pytest.FixtureRequest) -> Iterator[Odradek]:
    """Process that the clusters of this session live in."""
    from odradek.testing.sync import Odradek

    config = request.config
    address: str | None = config.getoption(OPTION) or os.environ.get(CONTROL)
    worker: Mapping[str, Any] = getattr(config, "workerinput", {})
    if address:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise pytest.UsageError(f"{OPTION} {address}: HOST:PORT is asked for")
        yield Odradek(host, int(port), token=os.environ.get(TOKEN))
    elif ADDRESS in worker:
        yield shared(worker[ADDRESS])
    else:
        with Odradek.start() as started:
            yield started


@pytest.fixture
def kafka(odradek: Odradek, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Fresh cluster. Its options are those of the marker `kafka`, and of an indirect parameter.

    It is deleted at the end. A rule that nothing matched is an error of a test that passed.
    """
    from odradek.testing.sync import Refused, Unused

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARK))):  # the nearest last
        options |= mark.kwargs
    options |= getattr(request, "param", {})
    cluster = odradek.cluster(**options)
    request.node.stash[CLUSTER] = cluster
    yield cluster
    try:
        if not request.node.stash.get(HAS_FAILED, False):
            cluster.check_faults()
    except Unused as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        with suppress(Refused):  # the test may have deleted it
            cluster.delete()


@pytest.fixture
def async_kafka(odradek: Odradek, kafka: Cluster) -> Iterator[Any]:
    """Cluster of fixture `kafka`, in the form whose methods are coroutines: an `odradek.testing.Cluster`."""
    from concurrent.futures import ThreadPoolExecutor

    from odradek.testing.asynchronous import Cluster as AsyncCluster

    with ThreadPoolExecutor(thread_name_prefix="odradek-testing") as threads:
        yield AsyncCluster(threads, kafka)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when != "teardown" and report.failed and CLUSTER in item.stash:
        from odradek.testing.sync import Refused

        item.stash[HAS_FAILED] = True
        try:
            story = story_of(item.stash[CLUSTER])
        except (Refused, OSError) as error:  # deleted, crashed: the failure itself is what the reader needs
            story = f"nothing is known of its cluster: {error}"
        report.sections.append(("Kafka: the last exchanges", story))
    return report


def story_of(cluster: Cluster) -> str:
    """Tells who waits, which rules matched, and the last exchanges, the oldest first."""
    lines = [f"{waiting} at hold {name}" for name, waiting in cluster.holds().items()]
    lines += [f"rule {each['name']}: {each['matched']} matched, {each['hits']} hits" for each in cluster.faults()]
    exchanges = cluster.requests()[-SHOWN:]
    for exchange in exchanges:
        lines += lines_of(exchange, exchanges[0]["received_ms"])
    return "\n".join(lines) or "no client has sent a request"


def lines_of(exchange: Mapping[str, Json], begin_ms: int) -> list[str]:
    what = f"{exchange['api']} v{exchange['version']}"
    asked = f"+{exchange['received_ms'] - begin_ms} ms {exchange['client_id']} {what} {short(exchange.get('request'))}"
    if exchange["answered_ms"] is None:
        return [asked, f"    no answer{', the connection is closed' if exchange.get('closed') else ' yet'}"]
    errors = "".join(f" {name}" for name in errors_in(exchange.get("answer")))
    return [
        asked,
        f"    {exchange['answered_ms'] - exchange['received_ms']} ms{errors} {short(exchange.get('answer'))}",
    ]


def short(value: Json) -> str:
    text = json.dumps(value)
    return text if len(text) <= LINE else text[:LINE] + "…"


def errors_in(answer: Json) -> list[str]:
    """Names of the error codes, each once; the number of one that Kafka does not have: a rule may give it."""
    from odradek.protocol.errors import ErrorCode

    codes = {code.value: code.name for code in ErrorCode}
    found: dict[str, None] = {}
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "errorCode" and isinstance(value, int):
                found |= {codes.get(value, str(value)): None} if value else {}
            else:
                found |= dict.fromkeys(errors_in(value))
    elif isinstance(answer, list):
        for each in answer:
            found |= dict.fromkeys(errors_in(each))
    return list(found)
