"""Implements `odradek record`, which records the exchanges between clients and any Kafka broker."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.system.processes import new_asyncio_loop, on_stop
from odradek.tools.commands.errors import DONE, UNREACHABLE
from odradek.tools.commands.options import host_and_port
from odradek.tools.commands.output import complain

if TYPE_CHECKING:
    from odradek.testing.recording_proxy import RecordingProxy


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording", type=Path, metavar="FILE", help="the recording to write; an existing file is replaced"
    )
    parser.add_argument(
        "--listen",
        type=host_and_port,
        required=True,
        metavar="HOST:PORT",
        help="the address to listen on, which the broker advertises",
    )
    parser.add_argument(
        "--upstream",
        type=host_and_port,
        required=True,
        metavar="HOST:PORT",
        help="the address on which the broker actually listens",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.testing.recording_proxy import RecordingProxy

    host, port = options.listen
    upstream = f"{host}:{port}"

    def warn(address: tuple[str, int]) -> None:
        where = f"{address[0]}:{address[1]}"
        complain(
            "odradek record",
            f"the broker advertises {where}, so clients bypass this recording after their first requests: set"
            f" advertised.listeners of the broker to {upstream}",
        )

    try:
        with asyncio.Runner(loop_factory=new_asyncio_loop) as runner:
            runner.run(_serve(RecordingProxy(options.recording, options.upstream, warn), options.listen))
    except OSError as error:
        complain("odradek record", str(error))
        return UNREACHABLE
    return DONE


async def _serve(proxy: RecordingProxy, listen: tuple[str, int]) -> None:
    stop = asyncio.Event()
    on_stop(asyncio.get_running_loop(), lambda _: stop.set())
    try:
        await proxy.start(*listen)
        upstream = ":".join(map(str, proxy.broker_address))
        print(f"recording {listen[0]}:{proxy.port}, and forwarding to {upstream}", flush=True)
        await stop.wait()
    finally:
        await proxy.close()
    print(f"{proxy.exchanges} requests recorded", flush=True)
    if proxy.bypassing_addresses:
        where = ", ".join(f"{host}:{port}" for host, port in proxy.bypassing_addresses)
        complain("odradek record", f"requests that clients sent to {where} are not in the recording")
