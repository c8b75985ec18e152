"""Implements `odradek replay`, which replays a recording against a broker and compares the responses."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.tools.commands.errors import UNREACHABLE
from odradek.tools.commands.options import add_list, host_and_port
from odradek.tools.commands.output import complain

if TYPE_CHECKING:
    from odradek.testing.replay.player import Control, FoundDifference, ReplayResult

SAME, DIFFERENT, MISUNDERSTOOD = 0, 1, 2
MAX_SHOWN_EXCHANGES = 3  # maximum number of exchanges listed for one difference


def parse_explanation(text: str) -> tuple[str, str]:
    """Parses `API.PATH=REASON`. Raises ArgumentTypeError."""
    pattern, _, reason = text.partition("=")
    if not pattern.strip() or not reason.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not API.PATH=REASON")
    return pattern.strip(), reason.strip()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording",
        type=Path,
        metavar="FILE",
        help="a recording that `odradek serve --record`, `judge --record` or `record` wrote",
    )
    parser.add_argument(
        "--bootstrap-server",
        type=host_and_port,
        metavar="HOST:PORT",
        help="a broker without TLS and SASL; default: a fresh one is started",
    )
    parser.add_argument(
        "--no-pauses", action="store_true", help="send requests without the pauses that the clients made"
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="also compare requests that were refused with a temporary error; by default they are left out, because"
        " clients repeat them until a broker is ready",
    )
    add_list(
        parser,
        "--ignore",
        type=parse_explanation,
        metavar="API.PATH=REASON",
        help="do not count this difference; * in the path matches any characters",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each difference")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.protocol.errors import MalformedMessage
    from odradek.testing.replay.player import RecordingPlayer
    from odradek.tools.commands.judge import recorded_entries

    try:
        # Reject an unreadable recording before a broker is started.
        next(recorded_entries(options.recording), None)
        with _broker(options.bootstrap_server) as (host, port, control):
            player = RecordingPlayer(
                host, port, control=control, with_pauses=not options.no_pauses, is_exact=options.exact
            )
            replayed = asyncio.run(player.play(lambda: recorded_entries(options.recording)))
    except MalformedMessage as error:
        complain("odradek replay", f"{options.recording}: {error}")
        return MISUNDERSTOOD
    except FileNotFoundError as error:
        complain("odradek replay", f"{options.recording}: {error.strerror}")
        return MISUNDERSTOOD
    except OSError as error:
        complain("odradek replay", str(error))
        return UNREACHABLE
    found = [each for each in replayed.differences if _reason(each, options.ignore) is None and not each.is_open]
    if options.json:
        for each in replayed.differences:
            print(json.dumps(_difference_json(each, _reason(each, options.ignore))))
    else:
        for line in lines(replayed, found):
            print(line)
    return DIFFERENT if found else SAME


@contextmanager
def _broker(given: tuple[str, int] | None) -> Iterator[tuple[str, int, Control | None]]:
    """Yields the address of the given broker, or the address and the control interface of a fresh broker."""
    if given is not None:
        yield (*given, None)
        return
    from odradek.testing.sync import Odradek, Process

    process = Process({})
    try:
        control = Odradek("127.0.0.1", process.ready["http_port"]).default.call
        yield process.ready["host"], process.ready["port"], control
    finally:
        process.stop()


def _name(found: FoundDifference) -> str:
    return f"{found.api}.{found.difference.path}"


def _reason(found: FoundDifference, ignored: Iterable[tuple[str, str]]) -> str | None:
    for pattern, reason in ignored:
        if fnmatchcase(_name(found), pattern.replace("[", "[[]")):
            return reason
    return None


def _difference_json(found: FoundDifference, reason: str | None) -> dict[str, object]:
    return {
        "exchange": found.exchange,
        "api": found.api,
        "version": found.version,
        "path": found.difference.path,
        "recorded": found.difference.recorded,
        "live": found.difference.live,
        "open": found.is_open,
        "explained": reason,
    }


def lines(replayed: ReplayResult, found: list[FoundDifference]) -> Iterator[str]:
    """Yields lines about the differences of each API, version and path, followed by the totals."""
    places: dict[tuple[str, int, str], list[FoundDifference]] = {}
    for each in found:
        places.setdefault((each.api, each.version, each.difference.path), []).append(each)
    for (api, version, path), those in places.items():
        first = those[0].difference
        numbers = ", ".join(str(each.exchange) for each in those[:MAX_SHOWN_EXCHANGES])
        more = f" and {len(those) - MAX_SHOWN_EXCHANGES} more" if len(those) > MAX_SHOWN_EXCHANGES else ""
        yield f"{api} v{version} {path or 'as a whole'}: recorded {first.recorded}, live {first.live}"
        yield f"    exchange {numbers}{more}"
    is_open = sum(each.is_open for each in replayed.differences)
    yield f"{replayed.compared} answers compared, {len(found)} differences"
    if len(replayed.differences) > len(found) + is_open:
        yield f"  {len(replayed.differences) - len(found) - is_open} are explained by --ignore"
    if is_open:
        yield (
            f"  {is_open} more depend on the order of concurrent requests, or on a temporary refusal (--json lists"
            " them)"
        )
    if replayed.repeated_requests:
        yield f"  {replayed.repeated_requests} requests were repeated after a temporary refusal"
    for reason, count in sorted(replayed.left_out.items()):
        yield f"  {count} left out: requests that {reason}"
