"""Implements `odradek wait`, which scripts that start a broker use to wait until it is ready. Also explains why
advertised addresses cannot be reached.

A response from the bootstrap server is not enough, because clients then connect to the addresses that it advertises. If
these addresses cannot be reached, the resulting errors, such as a timeout or a missing leader, do not show why.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.client.common.errors import ClientError
from odradek.tools.commands.errors import DONE, UNREACHABLE, CommandError
from odradek.tools.commands.options import add_connection, add_list, admin

if TYPE_CHECKING:
    from odradek.client.administration.cluster import BrokerDescription

PAUSE_S = 0.1
TIMEOUT_S = 2.0
SETTING = "advertised.listeners"


def configure(parser: argparse.ArgumentParser) -> None:
    add_list(parser, "-t", "--topic", metavar="TOPIC", help="also wait until this topic exists and has leaders")
    add_connection(parser)
    parser.set_defaults(run=run, timeout=60.0)


def run(options: argparse.Namespace) -> int:
    asyncio.run(_wait(options))
    return DONE


async def _wait(options: argparse.Namespace) -> None:
    """Waits until the broker is ready. On timeout, raises CommandError with the last reason."""
    from odradek.protocol.errors import ErrorCode

    ends_at = time.monotonic() + options.timeout
    while True:
        left_ms = max(1.0, (ends_at - time.monotonic()) * 1000)
        try:
            async with admin(options, left_ms, request_timeout_ms=min(5_000, left_ms)) as connection:
                found = await connection.describe_topics(options.topic) if options.topic else {}
                brokers = (await connection.describe_cluster()).brokers
                led = [each.leader for topic in found.values() for each in topic.partitions]
            elsewhere = await where_unreachable(options, brokers)
            if None not in led and elsewhere is None:
                return
            why = elsewhere or "a partition has no leader"
        except ClientError as error:
            if not error.is_retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            why = str(error)
        if time.monotonic() > ends_at:
            raise CommandError(f"the broker was not ready within {options.timeout:g} s: {why}", UNREACHABLE)
        await asyncio.sleep(PAUSE_S)


async def unreachable_broker(options: argparse.Namespace) -> str | None:
    """Explains which broker's advertised address cannot be reached. Returns None if all addresses can be reached, or
    the cluster cannot be described."""
    try:
        async with admin(options, TIMEOUT_S * 1000) as connection:
            brokers = (await connection.describe_cluster()).brokers
    except ClientError:
        return None
    return await where_unreachable(options, brokers)


async def where_unreachable(options: argparse.Namespace, brokers: Iterable[BrokerDescription]) -> str | None:
    """Explains which of these brokers' advertised addresses cannot be reached. Returns None if all addresses can be
    reached."""
    from odradek.tools.doctor.facts import reach

    for broker in brokers:
        why = (await reach(broker.host, broker.port, TIMEOUT_S)).error
        if why is not None:
            return (
                f"{options.bootstrap_server} answers, but it redirects clients to {broker.host}:{broker.port},"
                f" where broker {broker.broker_id} cannot be reached from this machine: {why}\n"
                f"Set {SETTING} of the broker to an address that its clients can reach. `odradek doctor` gives more"
                " details."
            )
    return None
