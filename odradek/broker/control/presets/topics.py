"""Presets of topics, logs and client quotas."""

from __future__ import annotations

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import PresetClient
from odradek.broker.control.problems import Problem
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse

HEADER_ALLOWANCE_BYTES = 100  # allowance in max.message.bytes for the headers of the batch and its records


async def recreated_topic(client: PresetClient, parameters: Parameters) -> Facts:
    """A topic was deleted and created again with the same name. It has a new topic id, and its offsets start at 0."""
    name = parameters.text("topic")
    existing = client.broker.metadata.image.topics.get(name)
    if existing is None:
        await client.topic(name)
        existing = client.broker.metadata.image.topics[name]
    partitions = parameters.number("partitions") or len(existing.partitions)
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000), DeleteTopicsResponse)
    await client.topic(name, partitions)
    return {
        "topic": name,
        "partitions": partitions,
        "old_id": existing.topic_id.hex(),
        "id": client.topic_id(name).hex(),
    }


async def more_partitions(client: PresetClient, parameters: Parameters) -> Facts:
    """The topic gets more partitions while clients use it."""
    name, more = parameters.text("topic"), parameters.number("more", 1, 1_000)
    await client.topic(name)
    count = len(client.broker.metadata.image.topics[name].partitions) + more
    creation = CreatePartitionsTopic(name=name, count=count, assignments=None)
    await client.ask(CreatePartitionsRequest(topics=[creation], timeout_ms=30_000), CreatePartitionsResponse)
    return {"topic": name, "partitions": count}


async def large_batch(client: PresetClient, parameters: Parameters) -> Facts:
    """A batch that is larger than the clients' fetch size lies between two small batches."""
    topic, size = parameters.text("topic"), parameters.number("size_bytes", 1, 64 * 1024 * 1024)
    if topic in client.broker.metadata.image.topics:
        raise Problem(409, f"topic {topic} exists, but this preset needs a new topic", field="topic")
    await client.topic(topic, 1, {"max.message.bytes": str(size + HEADER_ALLOWANCE_BYTES)})
    await client.produce(topic, 0, [b"small"])
    offset = await client.produce(topic, 0, [bytes(size)])
    await client.produce(topic, 0, [b"small"])
    return {**client.offsets(topic, 0), "large_offset": offset, "size_bytes": size}


async def throttled_client(client: PresetClient, parameters: Parameters) -> Facts:
    """Responses to Produce and Fetch throttle the client for `throttle_ms`."""
    name, throttle_ms = parameters.text("client_id"), parameters.number("throttle_ms", 1)
    rules = [
        {
            "name": f"throttled-client {name} {api}",
            "match": {"api": api, "client_id": name},
            "at": "applied",
            "do": {"throttle_ms": throttle_ms},
            "times": parameters.number("times", 1),
            "unused": "ok",
        }
        for api in ("Produce", "Fetch")
    ]
    added = client.cluster.faults.add(rules)
    return {"client_id": name, "throttle_ms": throttle_ms, "rules": [rule.name for rule in added]}


async def compacted_hole(client: PresetClient, parameters: Parameters) -> Facts:
    """A compacted log has a hole, because only the last of several records with the same key is left."""
    topic, records = parameters.text("topic"), parameters.number("records", 2)
    if topic in client.broker.metadata.image.topics:
        raise Problem(409, f"topic {topic} exists, but this preset needs a new topic", field="topic")
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "segment.jitter.ms": "0",
        "min.cleanable.dirty.ratio": "0",
    }
    await client.topic(topic, 1, configs)
    await client.produce(topic, 0, [b"first"], key=b"other")
    for _ in range(records):
        await client.produce(topic, 0, [b"again"], key=b"key")
    await client.cluster.time.advance(2_000, client.cluster.wait_until_idle)
    await client.produce(topic, 0, [b"last"], key=b"end")
    await client.cluster.time.advance(60_000, client.cluster.wait_until_idle)
    return {**client.offsets(topic, 0), "kept_offsets": [0, records, records + 1]}
