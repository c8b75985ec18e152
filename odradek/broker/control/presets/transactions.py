"""Presets of transactions and their coordinators."""

from __future__ import annotations

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import TRANSACTION, PresetClient
from odradek.broker.control.problems import Problem

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


async def open_transaction(client: PresetClient, parameters: Parameters) -> Facts:
    """Committed records are followed by the records of an open transaction from a dead producer."""
    topic, partition = parameters.text("topic"), parameters.number("partition")
    await client.topic(topic, partition + 1)
    if parameters.number("records"):
        await client.produce(topic, partition, [b"committed"] * parameters.number("records"))
    producer = await client.producer(parameters.text("transactional_id"), parameters.number("timeout_ms"))
    await client.produce(topic, partition, [b"open"] * parameters.number("open_records"), producer)
    return {**producer.facts(), **client.offsets(topic, partition)}


async def dead_producer(client: PresetClient, parameters: Parameters) -> Facts:
    """A dead producer has left an open transaction. When the next owner of the transactional id aborts the transaction,
    its marker is held, so the abort does not complete until the hold is released.
    """
    topic, name = parameters.text("topic"), parameters.text("transactional_id")
    await client.topic(topic)
    producer = await client.producer(name)
    await client.produce(topic, 0, [b"open"], producer)
    rule = {
        "at": "marker",
        "match": {"producer_id": producer.producer_id},
        "do": {"hold": parameters.text("hold")},
        "times": 1,
    }
    added = client.cluster.faults.add({"name": f"dead-producer {name}", "unused": "ok", **rule})
    return {**producer.facts(), "hold": parameters.text("hold"), "rule": added[0].name}


async def half_written_markers(client: PresetClient, parameters: Parameters) -> Facts:
    """A transaction has been decided. Its marker was written to partition 0, but the marker for partition 1 is held."""
    topic, name = parameters.text("topic"), parameters.text("transactional_id")
    is_commit = parameters.word("decision", ("commit", "abort")) == "commit"
    await client.topic(topic, 2)
    producer = await client.producer(name)
    for partition in (0, 1):
        await client.produce(topic, partition, [b"decided"], producer)
    match = {"producer_id": producer.producer_id, "topic": topic, "partition": 1}
    rule = {"at": "marker", "match": match, "do": {"hold": parameters.text("hold")}, "times": 1}
    added = client.cluster.faults.add({"name": f"half-written-markers {name}", **rule})
    facts = producer.facts()
    await client.end(producer, committed=is_commit)
    return {**facts, "hold": parameters.text("hold"), "rule": added[0].name}


async def aborted_tail(client: PresetClient, parameters: Parameters) -> Facts:
    """Committed records are followed only by aborted records and their markers."""
    topic, partition = parameters.text("topic"), parameters.number("partition")
    await client.topic(topic, partition + 1)
    if parameters.number("records"):
        await client.produce(topic, partition, [b"committed"] * parameters.number("records"))
    producer = await client.producer(parameters.text("transactional_id"))
    for _ in range(parameters.number("transactions")):
        await client.produce(topic, partition, [b"aborted"], producer)
        await client.end(producer, committed=False)
    return client.offsets(topic, partition)


async def lone_marker(client: PresetClient, parameters: Parameters) -> Facts:
    """The log begins with the marker of an aborted transaction. The transaction's records have been deleted."""
    topic, partition = parameters.text("topic"), parameters.number("partition")
    await client.topic(topic, partition + 1)
    producer = await client.producer(parameters.text("transactional_id"))
    await client.produce(topic, partition, [b"aborted"], producer)
    await client.end(producer, committed=False)
    log = client.log(topic, partition)
    await client.delete_records(topic, partition, log.log_end_offset - 1)
    if parameters.number("records"):
        await client.produce(topic, partition, [b"behind the marker"] * parameters.number("records"))
    return client.offsets(topic, partition)


async def empty_aborted_transaction(client: PresetClient, parameters: Parameters) -> Facts:
    """A partition has the abort marker of a transaction, but none of the transaction's records. Committed records from
    the same producer follow.
    """
    topic, partition = parameters.text("topic"), parameters.number("partition")
    await client.topic(topic, partition + 1)
    producer = await client.producer(parameters.text("transactional_id"))
    await client.add_partition(producer, topic, partition)
    await client.end(producer, committed=False)
    await client.produce(topic, partition, [b"committed"] * parameters.number("records"), producer)
    await client.end(producer, committed=True)
    return client.offsets(topic, partition)


async def abort_across_segments(client: PresetClient, parameters: Parameters) -> Facts:
    """Aborted records end a segment, and their marker begins the next; committed records follow."""
    topic, name = parameters.text("topic"), parameters.text("transactional_id")
    if topic in client.broker.metadata.image.topics:
        raise Problem(409, f"topic {topic} exists, but this preset needs a new topic", field="topic")
    await client.topic(topic, 1, {"segment.ms": "1000", "segment.jitter.ms": "0"})
    producer = await client.producer(name)
    await client.produce(topic, 0, [b"aborted"] * parameters.number("records"), producer)
    await client.cluster.time.advance(2_000, client.cluster.wait_until_idle)
    await client.end(producer, committed=False)
    await client.produce(topic, 0, [b"committed"])
    segments = [each.base_offset for each in client.log(topic, 0).segments]
    return {**client.offsets(topic, 0), "segments": segments}


async def expired_producer_ids(client: PresetClient, parameters: Parameters) -> Facts:
    """The clock has advanced until the producer ids in all partitions have expired."""
    config = client.broker.config
    ms = config.producer_id_expiration_ms + config.producer_id_expiration_check_interval_ms + MINUTE_MS
    await client.cluster.time.advance(ms, client.cluster.wait_until_idle)
    return {"advanced_ms": ms, "now_ms": client.cluster.time.now_ms()}


async def expired_transactional_ids(client: PresetClient, parameters: Parameters) -> Facts:
    """The clock has advanced until all transactional ids without an open transaction have expired."""
    config = client.broker.config
    ms = config.transactional_id_expiration_ms + 2 * 60 * MINUTE_MS
    await client.cluster.time.advance(ms, client.cluster.wait_until_idle)
    return {"advanced_ms": ms, "now_ms": client.cluster.time.now_ms()}


async def prepared_transaction(client: PresetClient, parameters: Parameters) -> Facts:
    """A two-phase producer prepared a transaction `days` ago, and its external coordinator has not decided it yet."""
    if not client.broker.config.transaction_two_phase_commit_enable:
        setting = "transaction.two.phase.commit.enable"
        raise Problem(409, f"the cluster needs {setting}=true", field="settings", allowed=f"{setting}=true")
    topic, days = parameters.text("topic"), parameters.number("days")
    await client.topic(topic)
    producer = await client.producer(parameters.text("transactional_id"), 0, two_phase=True)
    await client.produce(topic, 0, [b"prepared"], producer)
    await client.cluster.time.advance(days * DAY_MS, client.cluster.wait_until_idle)
    return {**producer.facts(), **client.offsets(topic, 0)}


async def coordinator_loading(client: PresetClient, parameters: Parameters) -> Facts:
    """The coordinator of a key is loading its log and does not finish before the hold is released."""
    kind, key = parameters.word("type", ("group", "transaction")), parameters.text("key")
    nodes = client.cluster.running_nodes
    if not nodes.running:
        raise Problem(409, "no node is running: start one")
    await client.coordinator(TRANSACTION if kind == "transaction" else 0, key)
    topic = "__transaction_state" if kind == "transaction" else "__consumer_offsets"
    rule = {"at": "loading", "match": {"topic": topic}, "do": {"hold": parameters.text("hold")}, "times": 1}
    added = client.cluster.faults.add({"name": f"coordinator-loading {kind} {key}", **rule})
    await nodes.move_coordinator(kind, key, nodes.running[0])
    return {"type": kind, "key": key, "hold": parameters.text("hold"), "rule": added[0].name}
