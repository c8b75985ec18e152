"""A preset that combines several rare states, as if the cluster had been through many incidents."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import MAX_TIMEOUT_MS, PresetClient
from odradek.broker.control.presets.producers import epoch_nearly_exhausted, producer_ids_nearly_used, sequence_wrap
from odradek.broker.control.presets.topics import more_partitions
from odradek.broker.control.presets.transactions import aborted_tail, open_transaction

PARTITIONS = 3
ERRORS: Mapping[str, str] = {  # API → the error that some of its requests get
    "Produce": "NOT_LEADER_OR_FOLLOWER",
    "EndTxn": "CONCURRENT_TRANSACTIONS",
    "AddOffsetsToTxn": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetCommit": "NOT_COORDINATOR",
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
}


async def bad_day(client: PresetClient, parameters: Parameters) -> Facts:
    """The cluster is in several rare states at the same time. The transactional id has one epoch left, and the block of
    producer ids has one id left. Partition 0 of the topic ends with aborted records. In partition 1, the sequence
    numbers wrap. In partition 2, a dead producer has an open transaction. The topic has one more partition than clients
    know. One in ten Produce, EndTxn, AddOffsetsToTxn, OffsetCommit and FindCoordinator requests, chosen by `seed`, gets
    a retriable error."""
    topic, name = parameters.text("topic"), parameters.text("transactional_id")
    await client.topic(topic, PARTITIONS)
    places: list[dict[str, str | int]] = [{"topic": topic, "partition": partition} for partition in range(PARTITIONS)]
    facts = {
        "aborted-tail": await aborted_tail(
            client,
            Parameters({}, {**places[0], "transactional_id": f"{name}-aborted", "records": 1, "transactions": 2}),
        ),
        "sequence-wrap": await sequence_wrap(client, Parameters({}, {**places[1], "records": 2, "sequences_left": 1})),
        "open-transaction": await open_transaction(
            client,
            Parameters(
                {},
                {
                    **places[2],
                    "transactional_id": f"{name}-dead",
                    "records": 1,
                    "open_records": 1,
                    "timeout_ms": MAX_TIMEOUT_MS,
                },
            ),
        ),
        "epoch-nearly-exhausted": await epoch_nearly_exhausted(
            client, Parameters({}, {"transactional_id": name, "epochs_left": 1})
        ),
        "producer-ids-nearly-used": await producer_ids_nearly_used(client, Parameters({}, {"ids_left": 1})),
        "more-partitions": await more_partitions(client, Parameters({}, {"topic": topic, "more": 1})),
    }
    rules = [
        {
            "name": f"bad-day {api}",
            "match": {"api": api},
            "do": {"error": error},
            "probability": 0.1,
            "seed": parameters.number("seed"),
            "unused": "ok",
        }
        for api, error in ERRORS.items()
    ]
    return {**facts, "rules": [rule.name for rule in client.cluster.faults.add(rules)]}
