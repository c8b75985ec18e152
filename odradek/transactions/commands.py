"""The commands `odradek transactions …`. Their implementations are imported when they run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from odradek.admin.cluster import Cluster, PartitionOf
    from odradek.transactions.hanging import OpenTransaction

MAX_TRANSACTION_TIMEOUT_MINUTES = 15  # Kafka's transaction.max.timeout.ms

app = typer.Typer(
    name="transactions",
    help="List transactions, and end those that keep readers waiting; also with Apache Kafka.",
    no_args_is_help=True,
)

BootstrapServer = Annotated[
    str, typer.Option("--bootstrap-server", "-b", help="A broker of the cluster.", metavar="HOST:PORT")
]
Json = Annotated[bool, typer.Option("--json", help="As a JSON array.")]
LOCAL = "localhost:9092"


@app.command("list")
def list_(
    bootstrap_server: BootstrapServer = LOCAL,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only transactions in this state, e.g. Ongoing; may be repeated.", metavar="STATE"),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(help="Only this producer id; may be repeated.", metavar="ID")
    ] = None,
    longer_than_ms: Annotated[
        int | None,
        typer.Option(
            "--duration-filter",
            help="Only ids whose last transaction began longer ago; use with --state Ongoing.",
            metavar="MS",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--transactional-id-pattern", help="Only ids that match this pattern as a whole.", metavar="REGEX"
        ),
    ] = None,
    in_doubt: Annotated[
        bool,
        typer.Option(
            "--in-doubt",
            help="Open transactions that wait for the decision of a two-phase commit, and others that are open for more"
            " than 15 minutes; with the readers they hold up. With --duration-filter: those of either kind that are"
            " older.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """All transactional ids that the coordinators know; or those in doubt."""
    from odradek.transactions.listing import Wanted, list_transactions
    from odradek.transactions.printing import print_rows

    if in_doubt:
        if state or producer_id or pattern is not None:
            raise typer.BadParameter("--in-doubt goes with --duration-filter and with no other selection")
        _with_cluster(
            bootstrap_server,
            lambda cluster: _print_in_doubt(cluster, bootstrap_server, longer_than_ms, as_json=json),
        )
        return
    wanted = Wanted(tuple(state or ()), tuple(producer_id or ()), longer_than_ms, pattern)

    def run(cluster: Cluster) -> None:
        rows = [
            {
                "transactional_id": each.transactional_id,
                "coordinator": each.coordinator,
                "producer_id": each.producer_id,
                "state": each.state,
            }
            for each in list_transactions(cluster, wanted)
        ]
        columns = {
            "transactional_id": "TRANSACTIONAL ID",
            "coordinator": "COORDINATOR",
            "producer_id": "PRODUCER ID",
            "state": "STATE",
        }
        print_rows(rows, columns, as_json=json, empty="No transactional ids.")

    _with_cluster(bootstrap_server, run)


def _print_in_doubt(cluster: Cluster, bootstrap_server: str, longer_than_ms: int | None, *, as_json: bool) -> None:
    from odradek.transactions.in_doubt import find_in_doubt
    from odradek.transactions.printing import duration, print_rows

    now_ms = _now_ms()
    found = find_in_doubt(
        cluster,
        now_ms,
        longer_than_ms=MAX_TRANSACTION_TIMEOUT_MINUTES * 60_000 if longer_than_ms is None else longer_than_ms,
        two_phase_longer_than_ms=longer_than_ms or 0,
    )
    sinks = _sinks(bootstrap_server, [each.transaction.transactional_id for each in found])
    rows = []
    for each in found:
        transaction = each.transaction
        sink, verdict = sinks.get(transaction.transactional_id, (None, None))
        open_for_ms = transaction.open_for_ms(now_ms) or 0
        rows.append(
            {
                "transactional_id": transaction.transactional_id,
                "coordinator": transaction.coordinator,
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "two_phase_commit": transaction.is_two_phase,
                "spark_sink": sink,
                "ledger_verdict": verdict,
                "started_ms": transaction.started_ms,
                "open_for_ms": open_for_ms,
                "partitions": [f"{topic}-{partition}" for topic, partition in transaction.partitions],
                "holds": [
                    {"partition": f"{held.topic}-{held.partition}", "offset": held.from_offset, "records": held.records}
                    for held in each.holds
                ],
            }
            if as_json
            else {
                "transactional_id": transaction.transactional_id,
                "pair": f"{transaction.producer_id}:{transaction.producer_epoch}",
                "why": "two-phase commit" if transaction.is_two_phase else "open for long",
                "sink": None if sink is None else f"{sink}: {verdict}",
                "open_for": duration(open_for_ms),
                "partitions": [f"{topic}-{partition}" for topic, partition in transaction.partitions],
                "holds": [
                    f"{held.topic}-{held.partition} at {held.from_offset} ({held.records} records)"
                    for held in each.holds
                ],
            }
        )
    columns = {
        "transactional_id": "TRANSACTIONAL ID",
        "pair": "PRODUCER ID:EPOCH",
        "why": "WHY",
        "open_for": "OPEN FOR",
        "partitions": "PARTITIONS",
        "holds": "HOLDS UP READERS OF",
    }
    if sinks:
        columns["sink"] = "SPARK SINK: VERDICT"
    print_rows(rows, columns, as_json=as_json, empty="No transactions in doubt.")


def _sinks(bootstrap_server: str, transactional_ids: list[str]) -> Mapping[str, tuple[str, str]]:
    """Of those that queries of Spark have left open: the sink, and what its ledger says."""
    from odradek.spark.names import task_of

    if not any(task_of(each) for each in transactional_ids):
        return {}
    import asyncio

    from odradek.admin.connection import AdminError
    from odradek.client import ClientError
    from odradek.spark.ledger import Brokers
    from odradek.spark.sinks import verdicts

    try:
        return asyncio.run(verdicts(Brokers(bootstrap_server, bootstrap_timeout_ms=0), transactional_ids))
    except ClientError as error:
        raise AdminError(f"the ledger of Spark's sinks: {error}") from None


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...")],
    bootstrap_server: BootstrapServer = LOCAL,
    json: Json = False,
) -> None:
    """The state of transactional ids, and the partitions that take part."""
    from odradek.admin.connection import AdminError
    from odradek.transactions.listing import describe as describe_one
    from odradek.transactions.printing import print_rows

    def run(cluster: Cluster) -> None:
        rows, failures = [], []
        for transactional_id in transactional_ids:
            try:
                found = describe_one(cluster, transactional_id)
            except AdminError as error:
                failures.append(str(error))
                continue
            rows.append(
                {
                    "transactional_id": found.transactional_id,
                    "coordinator": found.coordinator,
                    "producer_id": found.producer_id,
                    "producer_epoch": found.producer_epoch,
                    "state": found.state,
                    "timeout_ms": "never" if found.is_two_phase and not json else found.timeout_ms,
                    "started_ms": found.started_ms,
                    "open_for_ms": found.open_for_ms(_now_ms()),
                    "partitions": [f"{topic}-{partition}" for topic, partition in found.partitions],
                }
            )
        columns = {
            "transactional_id": "TRANSACTIONAL ID",
            "coordinator": "COORDINATOR",
            "producer_id": "PRODUCER ID",
            "producer_epoch": "EPOCH",
            "state": "STATE",
            "timeout_ms": "TIMEOUT MS",
            "open_for_ms": "OPEN FOR MS",
            "partitions": "PARTITIONS",
        }
        if rows or json:
            print_rows(rows, columns, as_json=json, empty="")
        if failures:
            raise AdminError("\n".join(failures))

    _with_cluster(bootstrap_server, run)


@app.command("find-hanging")
def find_hanging(
    bootstrap_server: BootstrapServer = LOCAL,
    topic: Annotated[str | None, typer.Option(help="Only in this topic.", metavar="TOPIC")] = None,
    partition: Annotated[int | None, typer.Option(help="Only in this partition.", metavar="N")] = None,
    broker_id: Annotated[int | None, typer.Option(help="Only partitions led by this broker.", metavar="ID")] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(help="Minutes without a record after which a transaction counts as hanging.", metavar="MINUTES"),
    ] = MAX_TRANSACTION_TIMEOUT_MINUTES,
    json: Json = False,
) -> None:
    """Transactions that are open in a partition and that no coordinator will ever end."""
    from odradek.transactions.hanging import find_hanging as find
    from odradek.transactions.printing import print_rows

    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")

    def run(cluster: Cluster) -> None:
        partitions = _partitions(cluster, topic, partition, broker_id)
        found = find(cluster, partitions, _now_ms() - max_transaction_timeout * 60_000)
        columns = {
            "topic": "TOPIC",
            "partition": "PARTITION",
            "producer_id": "PRODUCER ID",
            "producer_epoch": "EPOCH",
            "coordinator_epoch": "COORDINATOR EPOCH",
            "start_offset": "START OFFSET",
            "last_timestamp_ms": "LAST TIMESTAMP",
            "silent_for_ms": "SILENT FOR MS",
        }
        rows = [_open_transaction(each) for each in found]
        print_rows(rows, columns, as_json=json, empty="No hanging transactions.")

    _with_cluster(bootstrap_server, run)


@app.command()
def abort(
    bootstrap_server: BootstrapServer = LOCAL,
    transactional_id: Annotated[
        str | None,
        typer.Option(help="Abort its open transaction through the coordinator; fences its producer.", metavar="ID"),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="The topic of a hanging transaction.", metavar="TOPIC")] = None,
    partition: Annotated[int | None, typer.Option(help="The partition of a hanging transaction.", metavar="N")] = None,
    start_offset: Annotated[
        int | None, typer.Option(help="The offset where it begins, from find-hanging.", metavar="OFFSET")
    ] = None,
) -> None:
    """End an open transaction: by its coordinator, or, where none knows it, by a marker in one partition."""
    from odradek.admin.connection import AdminError
    from odradek.transactions.ending import abort_by_coordinator, abort_by_marker
    from odradek.transactions.hanging import transaction_at

    place = (topic, partition, start_offset)
    if (transactional_id is None) == (None in place) or (
        transactional_id is not None and any(each is not None for each in place)
    ):
        raise typer.BadParameter("either --transactional-id, or --topic, --partition and --start-offset")

    def run(cluster: Cluster) -> None:
        if transactional_id is not None:
            abort_by_coordinator(cluster, transactional_id)
            print(f"Aborted the transaction of {transactional_id}.")
            return
        assert topic is not None
        assert partition is not None
        assert start_offset is not None
        (found,) = _partitions(cluster, topic, partition, None)
        if found.leader_id is None:
            raise AdminError(f"{topic}-{partition} has no leader at the moment")
        abort_by_marker(cluster, transaction_at(cluster, found, start_offset))
        print(f"Aborted the transaction at offset {start_offset} of {topic}-{partition}.")

    _with_cluster(bootstrap_server, run)


@app.command("force-terminate")
def force_terminate(
    transactional_id: Annotated[str, typer.Option(help="The transactional id.", metavar="ID")],
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Abort the open transaction of a transactional id, a two-phase commit included, and fence its owner.

    The decision of an external coordinator is ignored: if it was to commit, the two sides diverge.
    """
    from odradek.transactions.ending import force_terminate as terminate
    from odradek.transactions.listing import ONGOING

    def run(cluster: Cluster) -> None:
        found = terminate(cluster, transactional_id)
        if found.state == ONGOING:
            kind = " of a two-phase commit" if found.is_two_phase else ""
            count = len(found.partitions)
            print(f"Aborted the transaction{kind} of {transactional_id}, in {count} partition{'s' * (count != 1)}.")
        else:
            print(f"{transactional_id} had no open transaction ({found.state}); its owner is fenced.")

    _with_cluster(bootstrap_server, run)


def _partitions(cluster: Cluster, topic: str | None, partition: int | None, broker_id: int | None) -> list[PartitionOf]:
    from odradek.admin.connection import AdminError

    found = [
        each
        for each in cluster.partitions(None if topic is None else [topic])
        if partition in (None, each.partition) and broker_id in (None, each.leader_id)
    ]
    if partition is not None and not found:
        raise AdminError(
            f"there is no partition {topic}-{partition}" + (f" on broker {broker_id}" if broker_id else "")
        )
    return found


def _open_transaction(found: OpenTransaction) -> dict[str, object]:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "start_offset": found.start_offset,
        "last_timestamp_ms": found.last_timestamp_ms,
        "silent_for_ms": found.silent_for_ms(_now_ms()),
    }


def _with_cluster(bootstrap_server: str, run: Callable[[Cluster], None]) -> None:
    from odradek.admin.cluster import Cluster
    from odradek.admin.connection import AdminError

    try:
        with Cluster(bootstrap_server) as cluster:
            run(cluster)
    except AdminError as error:
        for line in str(error).splitlines():
            print(f"odradek transactions: {line}", file=sys.stderr)
        raise typer.Exit(1) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
