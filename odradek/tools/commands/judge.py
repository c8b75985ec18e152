"""Implements `odradek judge`, which judges the Kafka clients that a command runs, or the clients in a recording."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import randrange
from typing import TYPE_CHECKING
from urllib.parse import quote

from odradek.control_calls.table import BASE, RECORDING
from odradek.tools.commands.interruption import Interruption
from odradek.tools.commands.options import add_list, host_and_port
from odradek.tools.commands.output import complain

if TYPE_CHECKING:
    from odradek.protocol.recording import RecordingEntry
    from odradek.protocol.struct import Buffer
    from odradek.testing.judge.scene import Client
    from odradek.testing.judge.verdicts import Software
    from odradek.testing.sync import Cluster as ControlledCluster
    from odradek.testing.sync import Json

KEPT, BROKEN, COMMAND_FAILED, NOTHING = 0, 1, 2, 3
MAX_READ_BYTES = 1 << 20
MAX_SEED = 1 << 31
MAX_SHOWN_RARE_ANSWERS = 8


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The judged command's exit status and duration, and the name of the signal that interrupted it."""

    status: int = 0
    took_s: float = 0.0
    signal: str = ""

    @property
    def failure(self) -> str:
        """The reason that the verdict does not cover a complete, successful run. Empty if it does."""
        if self.signal:
            return f"the run was ended by {self.signal}: the verdict covers only the requests before that"
        return f"the command ended with status {self.status}" if self.status else ""


@dataclass(frozen=True, slots=True)
class IgnoredRule:
    """A broken rule that the user has chosen to ignore. The rule is enforced again from the day after `until`."""

    rule: str
    reason: str
    until: date


def parse_ignored_rule(text: str) -> IgnoredRule:
    """Parses `RULE=REASON until YYYY-MM-DD`. Raises ArgumentTypeError."""
    rule, has_reason, rest = text.partition("=")
    reason, has_date, day = rest.rpartition(" until ")
    try:
        until = date.fromisoformat(day.strip())
    except ValueError:
        has_date = ""
    if not (has_reason and has_date and reason.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not RULE=REASON until YYYY-MM-DD")
    return IgnoredRule(rule.strip(), reason.strip(), until)


def parse_ignored_file(name: str) -> list[IgnoredRule]:
    """Parses a file with one `RULE=REASON until YYYY-MM-DD` per line. Skips empty lines, and lines that begin with #.
    Raises ArgumentTypeError."""
    try:
        found = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None
    return [parse_ignored_rule(line) for line in found if line.strip() and not line.startswith("#")]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="FILE | -- COMMAND", help="a recording, or a command with its arguments"
    )
    add_list(parser, "--only", metavar="PREFIX", help="only rules whose ids begin with this, such as 848.")
    add_list(
        parser,
        "--ignore",
        type=parse_ignored_rule,
        metavar="RULE=REASON until DATE",
        help="do not count violations of this rule until that date. Once the rule is kept again, judge fails until"
        " you remove this option",
    )
    parser.add_argument(
        "--ignore-file",
        type=parse_ignored_file,
        default=[],
        metavar="FILE",
        help="a file with one RULE=REASON until DATE per line; # begins a comment",
    )
    parser.add_argument("--strict", action="store_true", help="also fail if a SHOULD rule is broken")
    parser.add_argument(
        "--suite",
        action="store_true",
        help="play the scenarios of the suite; the command must be a driver for one client",
    )
    parser.add_argument(
        "--odd",
        type=int,
        metavar="SEED",
        help="the seed for the lawful but rare answers that the broker gives; 0 turns them off. Default: a random"
        " seed, which is printed",
    )
    parser.add_argument("--dryrun", action="store_true", help="only list the rules and what decides each of them")
    parser.add_argument("--all", action="store_true", help="also print a line for each rule that was not exercised")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON with every proof decoded. The output of the command then goes to standard error",
    )
    parser.add_argument("--json-file", type=Path, metavar="FILE", help="write the same JSON to a file")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a report as JUnit XML")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write an HTML page with all verdicts; a click on a verdict shows its proof",
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep the recording in this file")
    parser.add_argument(
        "--attach",
        type=host_and_port,
        metavar="HOST:PORT",
        help="judge the clients of a running `odradek serve --control` until Ctrl-C; HOST:PORT is its HTTP port",
    )
    parser.add_argument(
        "--cluster", default="default", metavar="ID", help="with --attach: the id of the cluster; default: %(default)s"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="with --attach: a file that contains odradek.http.token"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.testing.judge.reports import table
    from odradek.testing.judge.rules import RULES

    options.ignore += options.ignore_file
    unknown = [each.rule for each in options.ignore if each.rule not in RULES]
    no_rule = [each for each in options.only if not any(rule.startswith(each) for rule in RULES)]
    if unknown or no_rule:
        complain(
            "odradek judge", f"there is no rule {(unknown + no_rule)[0]}. `odradek judge --dryrun` lists the rules"
        )
        return NOTHING
    if options.dryrun:
        for line in table():
            print(line)
        return KEPT
    if (options.attach is None) != bool(options.words):
        complain(
            "odradek judge",
            "nothing to judge: give a recording, or -- and a command, or --attach. See `odradek judge --help`",
        )
        return NOTHING
    if options.suite and (options.attach is not None or options.record is not None):
        complain(
            "odradek judge", "--suite needs the command of a driver, and cannot be combined with --attach or --record"
        )
        return NOTHING
    is_recorded = (
        options.attach is None
        and not options.suite
        and len(options.words) == 1
        and _is_recording(Path(options.words[0]))
    )
    if options.odd is not None and (options.suite or options.attach is not None or is_recorded):
        complain("odradek judge", "--odd works only with the broker that judge starts for a command")
        return NOTHING
    missing = [each for each in _written_recordings(options) if not each.absolute().parent.is_dir()]
    if missing:
        complain(
            "odradek judge", f"{missing[0]} cannot be written, because the directory {missing[0].parent} does not exist"
        )
        return NOTHING
    if is_recorded:
        return _judge(Path(options.words[0]), options, CommandEnd())
    with Interruption() as interruption, tempfile.TemporaryDirectory(prefix="odradek-judge-") as folder:
        try:
            return _judge_live(options, Path(folder), interruption)
        except KeyboardInterrupt:
            complain("odradek judge", f"{_name(interruption)} ended the run before anything could be judged")
            return COMMAND_FAILED


def _judge_live(options: argparse.Namespace, folder: Path, interruption: Interruption) -> int:
    """Judges clients while they run: those of a command, of a driver, or of a broker with the control interface."""
    if options.suite:
        return _suite(options, folder, interruption)
    recording = options.record or folder / "recording"
    if options.attach is not None:
        return _judge(recording, options, CommandEnd()) if _write_recording(options, recording) else NOTHING
    began_s, output, seed = time.monotonic(), sys.stderr if options.json else None, _seed(options)
    try:
        with _broker(recording, seed) as (environment, kafka):
            status = interruption.run(options.words, environment, output)
            took_s = time.monotonic() - began_s
            rare = kafka.odd()["recent"] if seed and (status or interruption.received is not None) else []
    except FileNotFoundError:
        complain("odradek judge", f"{options.words[0]} is neither a recording nor an executable command")
        return NOTHING
    for line in _rare_answers(rare, recording, seed):
        complain("odradek judge", line)
    return _judge(recording, options, CommandEnd(status, took_s, _name(interruption)))


def _rare_answers(recent: Sequence[Mapping[str, Json]], recording: Path, seed: int) -> Iterator[str]:
    """Yields lines about the last odd responses that a failed command received. They may have caused the failure if the
    command does not handle every response that the protocol allows."""
    from odradek.protocol.recording import Kind

    if not recent:
        return
    numbers: dict[tuple[str, str | None, int], int] = {}
    for entry in recorded_entries(recording):
        if entry.kind is Kind.RECEIVED:
            start = request_start(entry.body)
            if start is not None:
                numbers[start] = entry.exchange
    yield "the command failed. The broker had given it answers that are lawful but rare (docs/judge.md). The latest:"
    for each in recent[-MAX_SHOWN_RARE_ANSWERS:]:
        if "api" not in each:
            yield f"  {each['name']}"
            continue
        number = numbers.get((each["api"], each["client_id"], each["correlation_id"]))
        where = "" if number is None else f" in exchange {number}"
        yield f"  {each['name']}: to {each['api']} of client {each['client_id']!r}{where}"
    yield f"Repeat the command with --odd {seed} to get the same answers, or with --odd 0 to get none. If it succeeds"
    yield "without rare answers, it cannot handle one of them."


def request_start(frame: Buffer) -> tuple[str, str | None, int] | None:
    """Returns the API, the client id and the correlation id of a request, or None if the request cannot be read."""
    from odradek.protocol.api_keys import ApiKey
    from odradek.protocol.errors import MalformedMessage
    from odradek.protocol.frames import read_request_header

    try:
        header, _ = read_request_header(memoryview(frame))
        return ApiKey(header.api_key).kafka_name, header.client_id, header.correlation_id
    except (MalformedMessage, ValueError, IndexError):
        return None


def _name(interruption: Interruption) -> str:
    return "" if interruption.received is None else interruption.received.name


def _written_recordings(options: argparse.Namespace) -> list[Path]:
    files = (options.json_file, options.junit, options.html, options.record)
    return [each for each in files if each is not None]


def _is_recording(path: Path) -> bool:
    from odradek.tools.inspect.command import is_recording

    return is_recording(path)


def _seed(options: argparse.Namespace) -> int:
    """Returns the seed for odd responses; 0 means no odd responses. If the options do not give a seed, chooses one and
    prints it."""
    if options.odd is not None:
        return int(options.odd)
    seed = randrange(1, MAX_SEED)
    print(
        f"the broker will give some answers that are lawful but rare; --odd {seed} repeats them, --odd 0 avoids them",
        file=sys.stderr,
        flush=True,
    )
    return seed


@contextmanager
def _broker(recording: Path, seed: int) -> Iterator[tuple[dict[str, str], ControlledCluster]]:
    """Starts a fresh broker. Yields the environment for a command, which contains the broker's address, and the
    broker's cluster. `seed` selects odd responses."""
    from odradek.testing.sync import Odradek, Process

    broker = Process({}, recording)
    try:
        kafka = Odradek("127.0.0.1", broker.ready["http_port"]).default
        kafka.odd(seed)
        address = f"{broker.ready['host']}:{broker.ready['port']}"
        control = f"127.0.0.1:{broker.ready['http_port']}"
        named = {"ODRADEK_BOOTSTRAP": address, "KAFKA_BOOTSTRAP_SERVERS": address, "ODRADEK_CONTROL": control}
        yield {**os.environ, **named}, kafka
    finally:
        broker.stop()


def _write_recording(options: argparse.Namespace, recording: Path) -> bool:
    """Writes the broker's recording to a file until SIGINT or SIGTERM arrives, or until the broker ends the recording.
    Returns False if the broker rejects the request to record."""
    host, port = options.attach
    connection = HTTPConnection(host, port)
    headers = {}
    if options.token_file is not None:
        headers["Authorization"] = f"Bearer {options.token_file.read_text(encoding='utf-8').strip()}"
    try:
        # If the recording is kept, include the records, because replaying it requires them.
        keeps_records = "false" if options.record is None else "true"
        method, path, _ = RECORDING.request({"records": keeps_records})
        connection.request(method, f"{BASE}/clusters/{quote(options.cluster, safe='')}{path}", headers=headers)
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            problem = json.loads(response.read() or b"{}")
            complain("odradek judge", f"{host}:{port}: {problem.get('detail', response.reason)}")
            return False
        print(f"attached to {host}:{port}; press Ctrl-C to end and to print the verdict", file=sys.stderr, flush=True)
        with recording.open("wb") as file:
            while data := response.read1(MAX_READ_BYTES):
                file.write(data)
                file.flush()
        complain("odradek judge", _end_reason(recording))
    except KeyboardInterrupt:
        return recording.exists()
    except (OSError, HTTPException, ValueError) as error:
        complain("odradek judge", f"{host}:{port}: {error}")
        return recording.exists() and recording.stat().st_size > 0
    finally:
        connection.close()
    return True


def _end_reason(recording: Path) -> str:
    """Returns the reason that the broker ended a recording."""
    from odradek.protocol.recording import Kind

    why = "the broker ended the recording"
    for entry in recorded_entries(recording):
        if entry.kind is Kind.EVENT:
            why = str(json.loads(entry.body).get("ended", why))
    return why


def _suite(options: argparse.Namespace, folder: Path, interruption: Interruption) -> int:
    from odradek.testing.suite.running import Outcome, run
    from odradek.testing.suite.scenarios import SCENARIOS

    def print_outcome(outcome: Outcome) -> None:
        print(outcome, file=sys.stderr, flush=True)

    only = tuple(options.only)
    chosen = [each for each in SCENARIOS if not only or each.rule.startswith(only)]
    clients: list[Client] = []
    began_s = time.monotonic()
    try:
        for found in run(options.words, chosen, folder, print_outcome):
            clients += found
    except OSError as error:
        complain("odradek judge", f"{options.words[0]}: {error.strerror}")
        return NOTHING
    except KeyboardInterrupt:
        complain(
            "odradek judge",
            f"{_name(interruption)} ended the run: only the scenarios that were played before are judged",
        )
    return _report(clients, options, CommandEnd(0, time.monotonic() - began_s, _name(interruption)))


def _judge(recording: Path, options: argparse.Namespace, ended: CommandEnd) -> int:
    from odradek.protocol.errors import MalformedMessage
    from odradek.testing.judge.judging import judge

    try:
        judged = judge(lambda: recorded_entries(recording))
    except MalformedMessage as error:
        complain("odradek judge", f"{recording}: {error}")
        return NOTHING
    status = _report(judged.clients(), options, ended)
    if judged.bypassing_addresses:
        where = " and ".join(judged.bypassing_addresses)
        complain(
            "odradek judge",
            f"the broker advertises {where}, so clients bypassed the recording. Their requests to that address are"
            " not judged",
        )
        if judged.is_of_bootstrap_only and status == KEPT:
            complain(
                "odradek judge",
                "only the first requests of the clients are recorded, which is too little for a verdict",
            )
            return NOTHING
    return status


def _report(clients: Iterable[Client], options: argparse.Namespace, ended: CommandEnd) -> int:
    from odradek.testing.judge.reports import as_json, junit, lines
    from odradek.testing.judge.verdicts import verdicts
    from odradek.tools.judge_page.page import page

    found = verdicts(clients, options.only)
    today = datetime.now(UTC).date()
    reasons = {each.rule: each.reason for each in options.ignore if each.until >= today}
    if options.json:
        print(as_json(found, reasons))
    else:
        for line in lines(found, reasons, everything=options.all):
            print(line)
    texts: list[tuple[Path | None, Callable[[], str]]] = [
        (options.json_file, lambda: as_json(found, reasons) + "\n"),
        (
            options.junit,
            lambda: junit(found, reasons, failure=ended.failure, took_s=ended.took_s, strict=options.strict),
        ),
        (options.html, lambda: page(found, reasons, "Verdict on Kafka clients")),
    ]
    are_written = True
    for file, text in texts:
        try:
            if file is not None:
                file.write_text(text(), encoding="utf-8")
        except OSError as error:
            complain("odradek judge", f"{file} cannot be written: {error.strerror}")
            are_written = False
    status = _status(found, options.ignore, reasons.keys(), ended, strict=options.strict)
    return status if are_written or status != KEPT else NOTHING


def recorded_entries(path: Path) -> Iterator[RecordingEntry]:
    """Yields the entries of a recording. Raises MalformedMessage, OSError."""
    from odradek.protocol.recording import Recording

    with path.open("rb") as file:
        yield from Recording(file.read).entries()


def _status(
    found: Sequence[Software],
    ignored: Sequence[IgnoredRule],
    reasons: Iterable[str],
    ended: CommandEnd,
    *,
    strict: bool,
) -> int:
    from odradek.testing.judge import verdicts as kinds

    reasons = set(reasons)
    for each in ignored:
        verdicts = [software.verdicts[each.rule].verdict for software in found if each.rule in software.verdicts]
        if each.rule not in reasons:
            complain("odradek judge", f"--ignore {each.rule} expired on {each.until}")
        elif kinds.BROKEN not in verdicts and kinds.KEPT in verdicts:
            complain("odradek judge", f"{each.rule} is no longer broken: remove --ignore {each.rule}")
            return BROKEN
    every = [verdict for software in found for verdict in software.verdicts.values()]
    if any(kinds.counts_against(each, strict=strict) and each.rule.id not in reasons for each in every):
        return BROKEN
    if ended.failure:
        complain("odradek judge", ended.failure)
        return COMMAND_FAILED
    if not any(each.verdict in (kinds.KEPT, kinds.BROKEN) for each in every):
        why = "the clients sent nothing to which these rules apply" if found else "no client connected"
        complain("odradek judge", f"nothing was exercised, because {why}")
        return NOTHING
    return KEPT
