"""The commands `odradek spark …`. None of them needs Spark."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

T = TypeVar("T")

app = typer.Typer(
    name="spark",
    help="Queries of Spark that write exactly once: what they have decided, and what they have left open.",
    no_args_is_help=True,
)

BootstrapServer = Annotated[
    str, typer.Option("--bootstrap-server", "-b", help="A broker of the cluster.", metavar="HOST:PORT")
]
Json = Annotated[bool, typer.Option("--json", help="As a JSON array.")]
LOCAL = "localhost:9092"


@app.command("sinks")
def sinks_(bootstrap_server: BootstrapServer = LOCAL, json: Json = False) -> None:
    """All sinks: the last batch that was decided, and transactions that readers of the output wait for."""
    from odradek.spark.ledger import Brokers
    from odradek.spark.sinks import COMMIT, sinks
    from odradek.transactions.printing import duration, print_rows

    now_ms = time.time_ns() // 1_000_000
    rows = []
    for state in _run(sinks(Brokers(bootstrap_server, bootstrap_timeout_ms=0))):
        entry = state.entry
        verdicts = [state.verdict(each.transactional_id) for each in state.open]
        since_ms = state.since_ms
        rows.append(
            {
                "sink": state.name,
                "batch": None if entry is None or entry.batch < 0 else entry.batch,
                "rows": None if entry is None else entry.rows,
                "run": None if entry is None else entry.run,
                "decided_ms": entry.at_ms if entry is not None and entry.at_ms else None,
                "in_doubt": [
                    {"transactional_id": each.transactional_id, "started_ms": each.started_ms, "verdict": verdict}
                    for each, verdict in zip(state.open, verdicts, strict=True)
                ],
            }
            if json
            else {
                "sink": state.name,
                "batch": None if entry is None or entry.batch < 0 else entry.batch,
                "rows": None if entry is None else entry.rows,
                "decided": f"{duration(now_ms - entry.at_ms)} ago" if entry is not None and entry.at_ms else None,
                "in_doubt": len(state.open) or "nothing",
                "since": None if since_ms is None else duration(now_ms - since_ms),
                "recover": f"{verdicts.count(COMMIT)} to commit, {len(verdicts) - verdicts.count(COMMIT)} to abort"
                if verdicts
                else None,
            }
        )
    columns = {
        "sink": "SINK",
        "batch": "LAST BATCH",
        "rows": "ROWS",
        "decided": "DECIDED",
        "in_doubt": "IN DOUBT",
        "since": "FOR",
        "recover": "RECOVER WOULD FIND",
    }
    print_rows(rows, columns, as_json=json, empty="No query has written exactly once to this cluster.")


@app.command()
def recover(
    sink: Annotated[str, typer.Argument(help="The name of the sink, from `odradek spark sinks`.", metavar="SINK")],
    bootstrap_server: BootstrapServer = LOCAL,
    run: Annotated[
        str | None, typer.Option(help="Abort only what this run has left open (its id, or the first 8 characters).")
    ] = None,
) -> None:
    """End what a query has left open: commit what it had decided, abort the rest, so that readers go on.

    For queries that will not be started again; those that are do it by themselves. A query that runs meanwhile fails
    once, and writes its batch again.
    """
    from odradek.spark.ledger import Brokers
    from odradek.spark.names import sink_of
    from odradek.spark.sinks import COMMIT, sinks
    from odradek.spark.two_phase import TwoPhaseSink

    brokers = Brokers(bootstrap_server, bootstrap_timeout_ms=0)

    async def work() -> tuple[int, int]:
        state = next((each for each in await sinks(brokers) if each.name == sink), None)
        if state is None:
            raise ValueError(f"there is no sink {sink!r}; `odradek spark sinks` lists them")
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
    print(f"{sink}: committed {committed}, aborted {aborted}; readers of its output wait for nothing of it.")


def _run(work: Coroutine[Any, Any, T]) -> T:
    from odradek.client import ClientError
    from odradek.spark.two_phase import SinkError

    try:
        return asyncio.run(work)
    except (ClientError, SinkError, ValueError) as error:
        print(f"odradek spark: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
