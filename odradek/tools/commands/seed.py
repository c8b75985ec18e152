"""Implements `odradek seed`, which writes a demonstration's topics, schemas and records to a running broker, or prints
the demonstration's seed."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from odradek.client.common.values import TopicPartition
from odradek.tools.commands.errors import DONE
from odradek.tools.commands.options import add_connection, client_settings
from odradek.tools.commands.registry_client import quoted, registry_client
from odradek.tools.commands.schema_options import add_registry

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.producer import Producer
    from odradek.seeds.plan import SeedPlan, SeedTopic
    from odradek.tools.commands.record_schemas import RecordEncoder
    from odradek.tools.commands.registry_client import RegistryClient


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--demo",
        action="store_true",
        help="write the topics orders, customers (Avro), clicks (Protobuf) and audit (JSON Schema)",
    )
    parser.add_argument(
        "--print", action="store_true", help="print the seed for `odradek serve --seed` instead of writing it"
    )
    add_registry(parser, "registry-")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.seeds.demo import demo_seed
    from odradek.seeds.document import parse_seed

    if not options.demo:
        raise ValueError("`odradek seed` needs --demo; to use a seed of your own, run `odradek serve --seed FILE`")
    text = demo_seed()
    if options.print:
        print(text)
    else:
        asyncio.run(_apply(parse_seed(text, "demo.json"), options))
    return DONE


async def _apply(plan: SeedPlan, options: argparse.Namespace) -> None:
    """Registers the missing schemas, creates the missing topics, and fills the topics that have no records."""
    from odradek.client.admin import Admin
    from odradek.client.producer import Producer

    settings = client_settings(options)
    await asyncio.to_thread(_register, plan, registry_client(options))
    async with Admin(**settings) as admin, Producer(**settings) as producer:
        for topic in plan.topics:
            if await _is_filled(admin, topic):
                print(f"{topic.name}: nothing is written, because the topic has records")
                continue
            encoder = await _encoder(topic, options)
            await _fill(producer, topic, encoder)
            print(f"{topic.name}: {len(topic.records)} records are written")


def _register(plan: SeedPlan, registry: RegistryClient) -> None:
    for schema in plan.schemas:
        registry.ask("POST", f"/subjects/{quoted(schema.subject)}/versions", schema.text.as_json())


async def _is_filled(admin: Admin, topic: SeedTopic) -> bool:
    """Creates the topic if it does not exist. Returns whether it has ever contained a record."""
    from odradek.client.administration.records import LATEST
    from odradek.client.administration.topics import NewTopic

    if topic.name not in await admin.list_topics():
        await admin.create_topics([NewTopic(topic.name, topic.partitions, None, dict(topic.settings))])
        return False
    described = (await admin.describe_topics([topic.name]))[topic.name]
    places = [TopicPartition(topic.name, each.partition) for each in described.partitions]
    ends = (await admin.list_offsets(dict.fromkeys(places, LATEST))).values()
    return any(end is not None and end.offset > 0 for end in ends)


async def _encoder(topic: SeedTopic, options: argparse.Namespace) -> RecordEncoder | None:
    from odradek.seeds.plan import JsonContent
    from odradek.tools.commands.record_schemas import encoder_of

    subjects = {record.value.subject for record in topic.records if isinstance(record.value, JsonContent)}
    if not subjects:
        return None
    (subject,) = subjects
    arguments = argparse.Namespace(
        **vars(options), topic=topic.name, key_format=None, value_format="schema", subject=subject, schema_id=None
    )
    return await encoder_of(arguments)


async def _fill(producer: Producer, topic: SeedTopic, encoder: RecordEncoder | None) -> None:
    from odradek.seeds.plan import JsonContent

    sent = []
    for record in topic.records:
        value = record.value
        if isinstance(value, JsonContent):
            assert encoder is not None, "the topic has a schema"
            value = encoder.encoded("value", value.text.encode())
        assert not isinstance(record.key, JsonContent), "keys of the demonstration have no schemas"
        sent.append(await producer.send(topic.name, value, key=record.key, headers=list(record.headers)))
    for each in sent:
        await each
