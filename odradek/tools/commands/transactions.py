"""Implements `odradek transactions`, which lists open transactions and the readers that they delay, and ends
transactions like kafka-transactions."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.client.common.errors import ClientError
from odradek.tools.commands.errors import NOT_FOUND, CommandError, explained
from odradek.tools.commands.options import CommandActions, add_topic, security
from odradek.tools.commands.output import duration, headings, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.requests import AdminRequests
    from odradek.tools.transactions import PartitionLeader

MAX_TRANSACTION_TIMEOUT_MINUTES = 15  # the default of Kafka's transaction.max.timeout.ms


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add(
        "list",
        "list the transactional ids that the coordinators know, or the transactions in doubt",
        list_,
        _check_selection,
        json=True,
    ) as listing:
        listing.add_argument(
            "--state", action="append", metavar="STATE", help="only ids in this state, such as Ongoing; may be repeated"
        )
        listing.add_argument(
            "--producer-id",
            type=int,
            action="append",
            metavar="ID",
            help="only ids with this producer id; may be repeated",
        )
        listing.add_argument(
            "--duration-filter",
            type=int,
            metavar="MS",
            help="only ids whose last transaction began longer ago than this; use it with --state Ongoing",
        )
        listing.add_argument(
            "--transactional-id-pattern", metavar="REGEX", help="only ids that match this regular expression completely"
        )
        listing.add_argument(
            "--in-doubt",
            action="store_true",
            help="list open transactions that wait for the decision of a two-phase commit, and others that have"
            " been open for more than 15 minutes, with the readers that they hold up. With --duration-filter,"
            " list only older ones of both kinds",
        )
    with actions.add(
        "describe", "show the state of transactional ids, and their partitions", describe, json=True
    ) as describing:
        describing.add_argument("transactional_ids", nargs="+", metavar="TRANSACTIONAL_ID")
    with actions.add(
        "find-hanging",
        "find transactions that are open in a partition, but that no coordinator will ever end",
        find_hanging,
        _check_partition,
        json=True,
    ) as finding:
        _add_partition(finding)
        finding.add_argument("--broker-id", type=int, metavar="ID", help="only partitions led by this broker")
        finding.add_argument(
            "--max-transaction-timeout",
            type=int,
            default=MAX_TRANSACTION_TIMEOUT_MINUTES,
            metavar="MINUTES",
            help="how many minutes after its last record a transaction counts as hanging; default: %(default)s",
        )
    with actions.add(
        "abort",
        "abort a transaction through its coordinator or, if no coordinator knows it, with a marker in one partition",
        abort,
        _check_place,
    ) as aborting:
        aborting.add_argument(
            "--transactional-id",
            metavar="ID",
            help="abort the open transaction of this id through its coordinator, and fence its producer",
        )
        _add_partition(aborting)
        aborting.add_argument(
            "--start-offset",
            type=int,
            metavar="OFFSET",
            help="the first offset of a hanging transaction, as find-hanging prints it",
        )
    with actions.add(
        "force-terminate",
        "abort the open transaction of an id, a two-phase commit included, and fence its owner",
        force_terminate,
        more="Abort the open transaction of a transactional id, a two-phase commit included, and fence its owner."
        " The decision of an external coordinator is ignored: if it decided to commit, the two sides diverge.",
    ) as forcing:
        forcing.add_argument("--transactional-id", required=True, metavar="ID", help="the transactional id")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    add_topic(parser, is_required=False, help="the topic of a hanging transaction")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="the partition of a hanging transaction")


def _check_selection(options: argparse.Namespace) -> None:
    if options.in_doubt and (options.state or options.producer_id or options.transactional_id_pattern is not None):
        raise ValueError("--in-doubt can be combined only with --duration-filter")


def _check_partition(options: argparse.Namespace) -> None:
    if options.partition is not None and options.topic is None:
        raise ValueError("--partition needs --topic")


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    if options.in_doubt:
        await _print_in_doubt(admin.requests, options)
        return
    found = await admin.list_transactions(
        states=options.state or (),
        producer_ids=options.producer_id or (),
        longer_than_ms=options.duration_filter,
        transactional_id_pattern=options.transactional_id_pattern,
    )
    keys = "transactional_id coordinator producer_id state"
    rows = [{key: getattr(each, key) for key in keys.split()} for each in found]
    print_rows(rows, headings(keys), as_json=options.json, empty="No transactional ids.")


async def _print_in_doubt(requests: AdminRequests, options: argparse.Namespace) -> None:
    from odradek.tools.transactions import find_in_doubt

    longer_than_ms, as_json = options.duration_filter, options.json
    now_ms = _now_ms()
    found = await find_in_doubt(
        requests,
        now_ms,
        longer_than_ms=MAX_TRANSACTION_TIMEOUT_MINUTES * 60_000 if longer_than_ms is None else longer_than_ms,
        two_phase_longer_than_ms=longer_than_ms or 0,
    )
    sinks = await _sinks(options, [each.transaction.transactional_id for each in found])
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
                    {
                        "partition": f"{backlog.topic}-{backlog.partition}",
                        "offset": backlog.from_offset,
                        "records": backlog.records,
                    }
                    for backlog in each.holds
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
                    f"{backlog.topic}-{backlog.partition} at {backlog.from_offset} ({backlog.records} records)"
                    for backlog in each.holds
                ],
            }
        )
    columns = headings(
        "transactional_id pair why open_for partitions holds" + (" sink" if sinks else ""),
        pair="PRODUCER ID:EPOCH",
        holds="HOLDS UP READERS OF",
        sink="SPARK SINK: VERDICT",
    )
    print_rows(rows, columns, as_json=as_json, empty="No transactions in doubt.")


async def _sinks(options: argparse.Namespace, transactional_ids: list[str]) -> Mapping[str, tuple[str, str]]:
    """Returns the sink and its ledger's verdict for each transactional id that belongs to a Spark query."""
    from odradek.spark.names import task_of

    if not any(task_of(each) for each in transactional_ids):
        return {}
    from odradek.spark.brokers import Brokers
    from odradek.spark.ledger import verdicts

    try:
        brokers = Brokers(options.bootstrap_server, bootstrap_timeout_ms=0, security=security(options))
        return await verdicts(brokers, transactional_ids)
    except ClientError as error:
        raise CommandError(f"the ledger of the Spark sinks cannot be read: {error}") from None


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    """Prints the descriptions of all ids that can be described, even if other ids fail."""
    rows: list[dict[str, object]] = []
    failures: list[tuple[int, str]] = []
    for transactional_id in options.transactional_ids:
        try:
            found = (await admin.describe_transactions([transactional_id]))[transactional_id]
        except ClientError as error:
            failures.append(explained(error))
            continue
        rows.append(
            {
                "transactional_id": found.transactional_id,
                "coordinator": found.coordinator,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "state": found.state,
                "timeout_ms": "never" if found.is_two_phase and not options.json else found.timeout_ms,
                "started_ms": found.started_ms,
                "open_for_ms": found.open_for_ms(_now_ms()),
                "partitions": [f"{topic}-{partition}" for topic, partition in found.partitions],
            }
        )
    columns = headings(
        "transactional_id coordinator producer_id producer_epoch state timeout_ms open_for_ms partitions",
        producer_epoch="EPOCH",
    )
    if rows or options.json:
        print_rows(rows, columns, as_json=options.json, empty="")
    if failures:
        raise CommandError("\n".join(text for _, text in failures), max(status for status, _ in failures))


async def find_hanging(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.tools.transactions import find_hanging as find

    partitions = await _partitions(admin.requests, options.topic, options.partition, options.broker_id)
    found = await find(admin.requests, partitions, _now_ms() - options.max_transaction_timeout * 60_000)
    keys = "topic partition producer_id producer_epoch coordinator_epoch start_offset last_timestamp_ms"
    rows = [
        {key: getattr(each, key) for key in keys.split()} | {"silent_for_ms": each.silent_for_ms(_now_ms())}
        for each in found
    ]
    columns = headings(f"{keys} silent_for_ms", producer_epoch="EPOCH", last_timestamp_ms="LAST TIMESTAMP")
    print_rows(rows, columns, as_json=options.json, empty="No hanging transactions.")


def _check_place(options: argparse.Namespace) -> None:
    """Raises ValueError unless the options identify one transaction, either by its id, or by its partition and start
    offset."""
    place = (options.topic, options.partition, options.start_offset)
    if (options.transactional_id is None) == (None in place) or (
        options.transactional_id is not None and any(each is not None for each in place)
    ):
        raise ValueError("give either --transactional-id, or --topic, --partition and --start-offset")


async def abort(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.tools.transactions import abort_by_coordinator, abort_by_marker, transaction_at

    if options.transactional_id is not None:
        await abort_by_coordinator(admin.requests, options.transactional_id)
        print(f"Aborted the transaction of {options.transactional_id}.")
        return
    place = f"{options.topic}-{options.partition}"
    (found,) = await _partitions(admin.requests, options.topic, options.partition, None)
    if found.leader_id is None:
        raise CommandError(f"{place} has no leader at the moment")
    await abort_by_marker(admin.requests, await transaction_at(admin.requests, found, options.start_offset))
    print(f"Aborted the transaction at offset {options.start_offset} of {place}.")


async def force_terminate(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.tools.transactions import ONGOING
    from odradek.tools.transactions import force_terminate as terminate

    transactional_id = options.transactional_id
    found = await terminate(admin.requests, transactional_id)
    if found.state == ONGOING:
        kind = " of a two-phase commit" if found.is_two_phase else ""
        count = len(found.partitions)
        print(f"Aborted the transaction{kind} of {transactional_id}, in {count} partition{'s' * (count != 1)}.")
    else:
        print(f"{transactional_id} had no open transaction ({found.state}); its owner is fenced.")


async def _partitions(
    requests: AdminRequests, topic: str | None, partition: int | None, broker_id: int | None
) -> list[PartitionLeader]:
    from odradek.tools.transactions import list_partitions

    found = [
        each
        for each in await list_partitions(requests, None if topic is None else [topic])
        if partition in (None, each.partition) and broker_id in (None, each.leader_id)
    ]
    if partition is not None and not found:
        where = f" on broker {broker_id}" if broker_id else ""
        raise CommandError(f"there is no partition {topic}-{partition}{where}", NOT_FOUND)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
