"""Whether a broker sends its clients where they cannot get. It is the usual reason why the bootstrap server answers and
nothing else does, and errors of what comes then (a timeout, a leader that is not there) do not tell it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.client.common.errors import ClientError
from odradek.tools.commands.options import client_settings

if TYPE_CHECKING:
    from odradek.client.administration.cluster import BrokerDescription

TIMEOUT_S = 2.0
SETTING = "advertised.listeners"


async def unreachable_broker(options: argparse.Namespace) -> str | None:
    """What to say of the first broker whose advertised address leads nowhere; None where that is not the reason."""
    from odradek.client.admin import Admin

    timeout_ms = TIMEOUT_S * 1000
    try:
        async with Admin(
            **client_settings(options), default_api_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
        ) as admin:
            brokers = (await admin.describe_cluster()).brokers
    except ClientError:
        return None
    return await where_unreachable(options, brokers)


async def where_unreachable(options: argparse.Namespace, brokers: Iterable[BrokerDescription]) -> str | None:
    """The same, of brokers that were described already."""
    for broker in brokers:
        why = await failure(broker.host, broker.port)
        if why is not None:
            return (
                f"{options.bootstrap_server} answers, and sends clients to {broker.host}:{broker.port}, where broker"
                f" {broker.broker_id} cannot be reached from here: {why}\n"
                f"Set {SETTING} of the broker to an address that its clients reach; `odradek doctor` says more."
            )
    return None


async def failure(host: str, port: int) -> str | None:
    """Why there is no connection; None where there is one."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer in {TIMEOUT_S:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
    writer.close()
    return None
