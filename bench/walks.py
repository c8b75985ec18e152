"""Lists the files that a request passes through, from its frame to its response:
`python -m bench walks [OPERATION] [--functions]`.

A broker runs in a thread of this process, and receives the requests of the operations in bench/guard. Each operation is
sent a few times first, so that objects and modules that are created or loaded only once already exist. Then the program
records the functions in odradek/ that run from the arrival of a request's frame until its response is encoded, and
lists their files. A reader who follows the complete request opens these files. The walks in docs/architecture.md name
the functions that matter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import odradek
from bench.guard.operations import OPERATIONS
from odradek.broker.api.context import ConnectionInfo
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.network.connection_host import FrameReceiver
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.runtime.replies import ParkedRequest, WrappedRequest
from odradek.broker.serving import ServingBroker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.file_slice import Chunk

TURNS = 3  # the requests of the last turn are listed
PACKAGE = str(Path(odradek.__file__).parent) + os.sep
GENERATED = "protocol/messages/"


class Walks(RequestFilter):
    """Records the functions that run for each request. It works only if requests do not overlap.

    `passed` contains the functions that the last request of each API ran, by file.
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

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            self._now.setdefault(file.removeprefix(PACKAGE), set()).add(frame.f_code.co_qualname)


class _WalkedReply(WrappedRequest):
    """A response that is not available yet. Recording ends when the response is encoded."""

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
    """A broker in a thread. The future `started` resolves to the broker's address and its walks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._settings = {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "odradek.http.port": "-1",
        }
        self.started: Future[tuple[str, Walks]] = Future()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        serving = ServingBroker(BrokerConfig(self._settings), self._loop)
        await serving.start()
        server, bound = serving.servers[0], serving.broker.bound[0]
        walks = server.requests = Walks(server.requests)
        self.started.set_result((f"{bound.host}:{bound.port}", walks))
        await self._is_over.wait()
        await serving.stop(5)

    def finish(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "operation", nargs="?", default="", help="part of the name of the operations whose files to list"
    )
    parser.add_argument("--functions", action="store_true", help="list the functions of each file, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = WalkedBroker(Path(directory))
        broker.start()
        bootstrap, walks = broker.started.result()
        for operation in OPERATIONS:
            if options.operation not in operation.name:
                continue
            with ExitStack() as stack:
                turn = operation.begin(bootstrap, stack)
                for _ in range(TURNS):
                    walks.passed.clear()
                    turn()
                for api, passed in walks.passed.items():
                    show(operation.name, api, passed, lists=bool(options.operation), functions=options.functions)
        broker.finish()


def show(operation: str, api: ApiKey, passed: Mapping[str, set[str]], *, lists: bool, functions: bool) -> None:
    generated = sum(file.startswith(GENERATED) for file in passed)
    print(f"{operation:<48}{api.kafka_name:<28}{len(passed):>4} files, {generated} of them generated from schemas")
    for file in sorted(passed) if lists else ():
        print("   ", file)
        for name in sorted(passed[file]) if functions else ():
            print("       ", name)


if __name__ == "__main__":
    main()
