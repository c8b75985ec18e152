"""Implements `odradek spark`, which shows the decisions of queries that write exactly once and ends the transactions
that these queries have left open. Does not need Spark."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from odradek.tools.commands.errors import DONE, NOT_FOUND, CommandError
from odradek.tools.commands.options import add_connection, add_json, security
from odradek.tools.commands.output import duration, headings, print_rows
from odradek.tools.commands.spark_jobs import add_diff, add_exactly_once, add_export, add_profile

T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "sinks",
        help="show the last batch that each sink decided, and the transactions that keep readers waiting",
    )
    add_json(listing)
    add_connection(listing)
    listing.set_defaults(run=sinks_)

    recovering = actions.add_parser(
        "recover",
        help="end the transactions that a query left open, so that readers can continue",
        description="Commits the transactions that a query had decided to commit, and aborts the others, so that"
        " readers can continue. Use it for queries that will not be started again: a query that is restarted"
        " recovers automatically. If the query is running, it fails once and writes its batch again.",
    )
    recovering.add_argument("sink", metavar="SINK", help="the name of the sink, from `odradek spark sinks`")
    recovering.add_argument(
        "--run", metavar="ID", dest="run_id", help="abort only the transactions of the run with this id"
    )
    add_connection(recovering)
    recovering.set_defaults(run=recover)
    for add_job in (add_exactly_once, add_export, add_diff, add_profile):
        add_job(actions)


def sinks_(options: argparse.Namespace) -> int:
    from odradek.spark.brokers import Brokers
    from odradek.spark.ledger import COMMIT, sinks

    now_ms = time.time_ns() // 1_000_000
    rows = []
    for state in _run(sinks(Brokers(options.bootstrap_server, bootstrap_timeout_ms=0, security=security(options)))):
        entry = state.entry
        verdicts = [state.verdict(each.transactional_id) for each in state.open]
        since_ms = state.since_ms
        row: dict[str, object] = {
            "sink": state.name,
            "batch": None if entry is None or entry.batch < 0 else entry.batch,
            "rows": None if entry is None else entry.rows,
        }
        rows.append(
            row
            | {
                "run": None if entry is None else entry.run,
                "decided_ms": entry.at_ms if entry is not None and entry.at_ms else None,
                "in_doubt": [
                    {"transactional_id": each.transactional_id, "started_ms": each.started_ms, "verdict": verdict}
                    for each, verdict in zip(state.open, verdicts, strict=True)
                ],
            }
            if options.json
            else row
            | {
                "decided": f"{duration(now_ms - entry.at_ms)} ago" if entry is not None and entry.at_ms else None,
                "in_doubt": len(state.open) or "nothing",
                "since": None if since_ms is None else duration(now_ms - since_ms),
                "recover": f"{verdicts.count(COMMIT)} to commit, {len(verdicts) - verdicts.count(COMMIT)} to abort"
                if verdicts
                else None,
            }
        )
    columns = headings(
        "sink batch rows decided in_doubt since recover", batch="LAST BATCH", since="FOR", recover="RECOVER WOULD FIND"
    )
    print_rows(rows, columns, as_json=options.json, empty="No query has used the exactly-once sink on this cluster.")
    return DONE


def recover(options: argparse.Namespace) -> int:
    from odradek.spark.brokers import Brokers
    from odradek.spark.ledger import COMMIT, sinks
    from odradek.spark.names import sink_of
    from odradek.spark.two_phase import TwoPhaseSink

    sink, run = options.sink, options.run_id
    brokers = Brokers(options.bootstrap_server, bootstrap_timeout_ms=0, security=security(options))

    async def work() -> tuple[int, int]:
        state = next((each for each in await sinks(brokers) if each.name == sink), None)
        if state is None:
            raise CommandError(f"there is no sink {sink!r}. `odradek spark sinks` lists the sinks", NOT_FOUND)
        two_phase = TwoPhaseSink(brokers, sink_of(sink))
        try:
            await two_phase.recover(run)
        finally:
            await two_phase.close()
        verdicts = [
            state.verdict(each.transactional_id)
            for each in state.open
            if run is None
            or f".t.{run[:8]}." in each.transactional_id
            or state.verdict(each.transactional_id) == COMMIT
        ]
        return verdicts.count(COMMIT), len(verdicts) - verdicts.count(COMMIT)

    committed, aborted = _run(work())
    print(f"{sink}: committed {committed}, aborted {aborted}; it no longer keeps readers waiting.")
    return DONE


def _run(work: Coroutine[Any, Any, T]) -> T:
    from odradek.spark.two_phase import SinkError

    try:
        return asyncio.run(work)
    except SinkError as error:
        raise CommandError(str(error)) from None
