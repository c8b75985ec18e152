"""Defines pytest fixtures: `kafka` is a fresh cluster for each test, and `odradek` is the process in which all clusters
run.

    def test_a_commit_that_is_refused_is_repeated(kafka):
        kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3})
        pay(kafka.bootstrap)

pytest finds the fixtures through the package's entry point. The first test that needs the process starts it, and all
workers of pytest-xdist share it. A failed test's report ends with the last exchanges of its cluster.

If the package is installed, every pytest run imports this module, even if the run does not use Odradek. The module
therefore imports the rest of the package only on first use.
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
CONTROL = "ODRADEK_CONTROL"  # environment variable equivalent to `--odradek`, for test runs that use several languages
TOKEN = "ODRADEK_TOKEN"
ADDRESS = "odradek_address"  # key of the shared process's address in pytest-xdist's `workerinput`
MAX_EXCHANGES = 20  # maximum number of exchanges at the end of a report
MAX_LENGTH = 400  # maximum number of characters for one exchange
SHARED_PROCESS = pytest.StashKey["SharedProcess"]()
CLUSTER = pytest.StashKey["Cluster"]()
HAS_FAILED = pytest.StashKey[bool]()

Address = tuple[str, int]


class SharedProcess:
    """Starts one Odradek process for all workers of pytest-xdist.

    It listens on a socket in pytest's main process. Each worker connects to the socket and receives the control
    interface's address as JSON. The first connection starts the Odradek process, which is stopped after the tests.
    """

    def __init__(self, start: Callable[[], Odradek]) -> None:
        self._start_odradek = start
        self._odradek: Odradek | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # makes `accept` in the thread return
        self._listener.close()
        self._thread.join()  # the thread may still be starting the process
        if self._odradek is not None:
            self._odradek.stop()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.sendall(json.dumps(self._address()).encode())

    def _address(self) -> Mapping[str, Json]:
        try:
            if self._odradek is None:
                self._odradek = self._start_odradek()
        except RuntimeError as error:
            return {"error": str(error)}
        return {"host": self._odradek.host, "port": self._odradek.port}


def shared_odradek(port: int) -> Odradek:
    """Returns the Odradek process that all workers share, given the port of its `SharedProcess`. Raises RuntimeError if
    the process did not start."""
    from odradek.testing.sync import Odradek

    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answer:
        address = json.loads(answer.read())
    if "error" in address:
        raise RuntimeError(address["error"])
    return Odradek(address["host"], address["port"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("odradek", "Odradek, a Kafka broker").addoption(
        OPTION,
        metavar="HOST:PORT",
        help=f"the HTTP address of a running `odradek serve --control`; default: ${CONTROL}, or else a new process."
        f" ${TOKEN} is its token, if it requires one",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(**options): options of the cluster of fixture `kafka`: settings, nodes, topics, ttl_s, preset,"
        " emulate, listeners, users, seed",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Passes the port of the `SharedProcess` to a worker of pytest-xdist."""
    from odradek.testing.sync import Odradek

    config: pytest.Config = node.config
    if SHARED_PROCESS not in config.stash:
        config.stash[SHARED_PROCESS] = SharedProcess(Odradek.start)
    node.workerinput[ADDRESS] = config.stash[SHARED_PROCESS].port


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED_PROCESS in config.stash:
        config.stash[SHARED_PROCESS].close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Sets up the cluster before the test's other function-scoped fixtures, so that it is torn down after them. A
    consumer closed after its cluster was deleted would wait for a coordinator that no longer exists. Without this hook,
    every fixture that closes a consumer would have to depend on `kafka`."""
    names: list[str] = getattr(item, "fixturenames", [])
    if MARK not in names:
        return
    definitions: Mapping[str, Sequence[Any]] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    if not any(each.func.__module__ == __name__ for each in definitions[MARK]):
        return  # the project has its own `kafka` fixture
    ours = [name for name in (MARK, ASYNC_MARK) if name in names]
    others = [name for name in names if name not in ours]
    scopes = [definitions[name][-1].scope if name in definitions else None for name in others]
    position = scopes.index(FUNCTION) if FUNCTION in scopes else len(others)
    names[:] = [*others[:position], *ours, *others[position:]]


@pytest.fixture(scope="session")
def odradek(request: pytest.FixtureRequest) -> Iterator[Odradek]:
    """The process in which this test session's clusters run. It is a new process, unless `--odradek` or the environment
    variable ODRADEK_CONTROL gives the address of a running one."""
    from odradek.testing.sync import Odradek

    config = request.config
    address: str | None = config.getoption(OPTION) or os.environ.get(CONTROL)
    worker: Mapping[str, Any] = getattr(config, "workerinput", {})
    if address:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise pytest.UsageError(f"{OPTION} {address} is not HOST:PORT")
        yield Odradek(host, int(port), token=os.environ.get(TOKEN))
    elif ADDRESS in worker:
        yield shared_odradek(worker[ADDRESS])
    else:
        with Odradek.start() as started:
            yield started


@pytest.fixture
def kafka(odradek: Odradek, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A fresh cluster for the test, which is deleted after the test. Its options come from the `kafka` marker and from
    an indirect parameter. If the test passed but a fault rule had no effect, the fixture fails the test."""
    from odradek.testing.sync import Refused, Unused

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARK))):  # the nearest marker overrides the others
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
        with suppress(Refused):  # the test may have deleted the cluster
            cluster.delete()


@pytest.fixture
def async_kafka(odradek: Odradek, kafka: Cluster) -> Iterator[Any]:
    """The `kafka` fixture's cluster as an `odradek.testing.Cluster`, whose methods are coroutines."""
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
            description = describe_cluster(item.stash[CLUSTER])
        # The cluster was deleted or has crashed. The test's own failure matters more to the reader than this error.
        except (Refused, OSError) as error:
            description = f"the state of its cluster is unknown: {error}"
        report.sections.append(("Kafka: the last exchanges", description))
    return report


def describe_cluster(cluster: Cluster) -> str:
    """Describes a cluster's state for a failed test's report: the number of requests waiting at each hold, the number
    of matches of each rule, and the last exchanges, oldest first."""
    lines = [f"{waiting} requests or steps wait at hold {name}" for name, waiting in cluster.holds().items()]
    lines += [f"rule {each['name']}: {each['matched']} matched, {each['hits']} hits" for each in cluster.faults()]
    exchanges = cluster.requests()[-MAX_EXCHANGES:]
    for exchange in exchanges:
        lines += exchange_lines(exchange, exchanges[0]["received_ms"])
    return "\n".join(lines) or "no client has sent a request"


def exchange_lines(exchange: Mapping[str, Json], begin_ms: int) -> list[str]:
    after_ms, request = exchange["received_ms"] - begin_ms, shortened_json(exchange.get("request"))
    request_line = f"+{after_ms} ms {exchange['client_id']} {exchange['api']} v{exchange['version']} {request}"
    if exchange["answered_ms"] is None:
        return [request_line, f"    no answer{', the connection is closed' if exchange.get('closed') else ' yet'}"]
    errors = "".join(f" {name}" for name in errors_in(exchange.get("answer")))
    return [
        request_line,
        f"    {exchange['answered_ms'] - exchange['received_ms']} ms{errors} {shortened_json(exchange.get('answer'))}",
    ]


def shortened_json(value: Json) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "…"


def errors_in(answer: Json) -> list[str]:
    """Returns the names of the error codes in a response, without duplicates. A code that Kafka does not define, which
    a fault rule can produce, is returned as a number."""
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
