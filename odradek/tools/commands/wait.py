"""`odradek wait`: returns when the broker serves, for scripts that start one.

That it answers is not enough: clients go on to the addresses that it advertises, so these have to lead somewhere too.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from odradek.tools.commands.advertised import where_unreachable
from odradek.tools.commands.errors import DONE, UNREACHABLE, CommandError
from odradek.tools.commands.options import add_connection, client_settings

PAUSE_S = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t", "--topic", action="append", default=[], metavar="TOPIC", help="also wait for this topic and its leaders"
    )
    add_connection(parser)
    parser.set_defaults(run=run, timeout=60.0)


def run(options: argparse.Namespace) -> int:
    asyncio.run(_wait(options))
    return DONE


async def _wait(options: argparse.Namespace) -> None:
    """Raises CommandError with the last reason when the time is over."""
    from odradek.client.admin import Admin
    from odradek.client.common.errors import ClientError
    from odradek.protocol.errors import ErrorCode

    ends_at = time.monotonic() + options.timeout
    while True:
        left_ms = max(1.0, (ends_at - time.monotonic()) * 1000)
        try:
            async with Admin(
                **client_settings(options),
                request_timeout_ms=min(5_000, left_ms),
                default_api_timeout_ms=left_ms,
            ) as admin:
                found = await admin.describe_topics(options.topic) if options.topic else {}
                brokers = (await admin.describe_cluster()).brokers
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
            raise CommandError(f"not ready after {options.timeout:g} s: {why}", UNREACHABLE)
        await asyncio.sleep(PAUSE_S)
