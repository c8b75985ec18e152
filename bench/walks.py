"""Lists the files that a request passes through, from its frame to its response: `python -m bench walks [OPERATION]
[--functions]`.

A broker runs in a thread of this process and receives the requests of the operations in bench/guard. Each operation is
sent a few times first, so that creating one-time objects and loading modules do not show up in the walk. The program
then records the functions in odradek/ that run from the arrival of a request's frame until its response is encoded, and
lists their files. These are the files that a reader opens to follow the complete request. The walks in
docs/architecture.md name the functions that matter.

The walk "a held marker" needs a broker controlled by tests. A rule holds a commit's marker. The walk contains the
functions from the frame of EndTxn until its response, which is sent while the marker is held, and those from the
release of the hold until the marker is written and reported to the coordinator. Three of its files come before the
coordinator: `api/dispatch.py`, `api/context.py` and the handler. The HTTP interface is not part of the walk, just as
sockets are not part of the other walks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType

import odradek
from bench.guard.operations import OPERATIONS, TransactionalProducer
from bench.topics import topic
from odradek.broker.api.context import ConnectionInfo
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.control.clusters.clusters import DEFAULT, Clusters
from odradek.broker.control.faults.rules import Rules
from odradek.broker.network.connection_host import FrameReceiver
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.runtime.replies import ParkedRequest, WrappedRequest
from odradek.broker.serving import ServingBroker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.file_slice import Chunk
from tests.support.wire import Wire

TURNS = 3  # the requests in the last turn are listed
PACKAGE = str(Path(odradek.__file__).parent) + os.sep
BROKER, GENERATED = "broker/", "protocol/messages/"
HELD_MARKER = "a held marker"
HOLD = "held"
RULE = {"at": "marker", "do": {"hold": HOLD}}


class Walks(RequestFilter):
    """Records the functions run for each request. It works only if requests do not overlap.

    `passed` contains the functions that each API's last request ran, keyed by file.
    """

    def __init__(self, plain: FrameReceiver) -> None:
        super().__init__(plain)
        self.passed: dict[ApiKey, dict[str, set[str]]] = {}

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        self._now = self.passed[ApiKey(int.from_bytes(frame[:2]))] = {}
        sys.setprofile(self._note)
        reply = self.plain.start(frame, connection)
        if isinstance(reply, list):
            sys.setprofile(None)
            return reply
        return _WalkedReply(reply)

    def add_release(self, rules: Rules) -> None:
        """Releases the last EndTxn request's marker and adds the functions that then run to those of the request."""
        self._now = self.passed[ApiKey.END_TXN]
        sys.setprofile(self._note)
        rules.release(HOLD)
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            self._now.setdefault(file.removeprefix(PACKAGE), set()).add(frame.f_code.co_qualname)


class _WalkedReply(WrappedRequest):
    """A response that is not available yet. Recording stops when the response is encoded."""

    @property
    def is_done(self) -> bool:
        return self._reply.is_done

    def when_done(self, action: Callable[[object], None]) -> None:
        self._reply.when_done(lambda _: action(self))

    def chunks(self) -> list[Chunk]:
        try:
            return self._reply.chunks()
        finally:
            sys.setprofile(None)


class WalkedBroker(threading.Thread):
    """A broker in a thread. The future `started` resolves to the broker's address and its walks.

    rules  the rules of a broker controlled by tests; None for an ordinary broker
    """

    def __init__(self, directory: Path, *, is_controlled: bool = False) -> None:
        super().__init__(daemon=True)
        self._settings = {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "odradek.http.port": "-1",
        }
        self._is_controlled = is_controlled
        self.rules: Rules | None = None
        self.started: Future[tuple[str, Walks]] = Future()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        serving = await self._start(BrokerConfig(self._settings))
        server, bound = serving.servers[0], serving.broker.bound[0]
        walks = server.requests = Walks(server.requests)
        self.started.set_result((f"{bound.host}:{bound.port}", walks))
        await self._is_over.wait()
        await serving.stop(5)

    async def _start(self, config: BrokerConfig) -> ServingBroker:
        if not self._is_controlled:
            serving = ServingBroker(config, self._loop)
            await serving.start()
            return serving
        clusters = Clusters(self._loop)
        serving = await clusters.start_default(config, lambda *_: None)
        faults = clusters.get(DEFAULT).faults
        faults.add(RULE)
        self.rules = faults.rules
        return serving

    def do(self, action: Callable[[], None]) -> None:
        """Runs an action in the broker's thread and waits for it to finish."""

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def finish(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self.join()


def walk_operations(named: str) -> Iterator[tuple[str, ApiKey, Mapping[str, set[str]]]]:
    """Yields the name, API and files of each request in the operations whose names contain `named`."""
    with tempfile.TemporaryDirectory() as directory:
        broker = WalkedBroker(Path(directory))
        broker.start()
        bootstrap, walks = broker.started.result()
        for operation in OPERATIONS:
            if named not in operation.name:
                continue
            with ExitStack() as stack:
                turn = operation.begin(bootstrap, stack)
                for _ in range(TURNS):
                    walks.passed.clear()
                    turn()
                for api, passed in walks.passed.items():
                    yield operation.name, api, passed
        broker.finish()


def walk_held_marker() -> Mapping[str, set[str]]:
    with tempfile.TemporaryDirectory() as directory:
        broker = WalkedBroker(Path(directory), is_controlled=True)
        broker.start()
        bootstrap, walks = broker.started.result()
        with topic(bootstrap, 1) as name, Wire(bootstrap) as wire:
            producer = TransactionalProducer(wire, name, 0)
            for _ in range(TURNS):
                producer.send()
                producer.sent()
                producer.commit()
                producer.committed()
                assert broker.rules is not None
                broker.do(partial(walks.add_release, broker.rules))
        broker.finish()
    return walks.passed[ApiKey.END_TXN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "operation", nargs="?", default="", help="part of the name of the operations whose files to list"
    )
    parser.add_argument("--functions", action="store_true", help="list the functions of each file, too")
    options = parser.parse_args()
    lists = bool(options.operation)
    for name, api, passed in walk_operations(options.operation):
        show(name, api, passed, lists=lists, functions=options.functions)
    if options.operation in HELD_MARKER:
        show(HELD_MARKER, ApiKey.END_TXN, walk_held_marker(), lists=lists, functions=options.functions)


def show(operation: str, api: ApiKey, passed: Mapping[str, set[str]], *, lists: bool, functions: bool) -> None:
    in_broker = sum(file.startswith(BROKER) for file in passed)
    generated = sum(file.startswith(GENERATED) for file in passed)
    print(
        f"{operation:<48}{api.kafka_name:<24}{len(passed):>3} files: {in_broker} in broker, {generated} generated from "
        "schemas"
    )
    for file in sorted(passed) if lists else ():
        print("   ", file)
        for name in sorted(passed[file]) if functions else ():
            print("       ", name)


if __name__ == "__main__":
    main()
