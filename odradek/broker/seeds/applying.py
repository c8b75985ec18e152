"""Applies a seed to a starting broker, or to a running control cluster, by sending requests inside the broker.

A seed adds what is missing and does not change what exists, so it can be applied at every start:

topics   created if there is no topic with the name
schemas  registered if the subject does not have them
records  written to partitions that have never been written to (their next offset is 0)
groups   an offset is committed if the group has none for the partition
users    a password is set if the user has none for the mechanism
ACLs     created unless they exist

All records of a partition form one batch, so that after a crash either all of them or none exist. The batches are built
in threads, because a process with control clusters also has to serve other brokers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.in_process.client import client_of_the_broker
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.runtime.workers import in_thread
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.key_partition import partition_for_key
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.scram import NEW_SALT_BYTES, scram_upsertion
from odradek.seeds.plan import (
    DEFAULT,
    JsonContent,
    Place,
    SeedAcl,
    SeedError,
    SeedGroup,
    SeedOffset,
    SeedPlan,
    SeedRecord,
    SeedTopic,
    SeedUser,
)

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.in_process.client import InProcessClient
    from odradek.broker.registry.service import RegistryService
    from odradek.broker.seeds.schemas import SchemaEncoder

log = logging.getLogger("odradek.seed")

TIMEOUT_MS: Final = 30_000
PRODUCE_WITH_NAMES: Final = 12  # last versions of Produce, OffsetCommit and OffsetFetch that identify topics by name
COMMIT_WITH_NAMES: Final = 9
FETCH_OFFSETS_WITH_NAMES: Final = 9
GROUP_KEY: Final = 0
POLL_INTERVAL_S: Final = 0.02
MAX_ATTEMPTS: Final = 1_500
COORDINATOR_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE.value,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value,
        ErrorCode.NOT_COORDINATOR.value,
    }
)


async def prepare_with_seed(broker: Broker, plan: SeedPlan) -> None:
    """Applies a starting broker's seed. Raises CannotStart if a part of the seed cannot be applied. The parts applied
    before the error remain, and the next startup applies the rest."""
    try:
        added = await apply_seed(broker, plan)
    except (SeedError, KafkaError) as error:
        raise CannotStart(f"the seed cannot be applied: {error}") from error
    counts = ", ".join(f"{name}: {count}" for name, count in added.items())
    log.info("seed: %s", f"added {counts}" if counts else "everything existed already")


async def apply_seed(broker: Broker, plan: SeedPlan, registry: RegistryService | None = None) -> Mapping[str, int]:
    """Applies a seed. Returns the numbers of topics, records and other resources that it has added because they were
    missing. Raises SeedError, KafkaError or CannotStart. The parts applied before the error remain.

    registry  the broker's schema registry, if it is already running
    """
    client = client_of_the_broker(broker)
    try:
        return await _Seeding(broker, client, registry).apply(plan)
    finally:
        client.close()


class _Seeding:
    def __init__(self, broker: Broker, client: InProcessClient, registry: RegistryService | None) -> None:
        self._broker = broker
        self._client = client
        self._registry = registry

    async def apply(self, plan: SeedPlan) -> Mapping[str, int]:
        by_schema = await self._schemas(plan)
        made = {
            "topics": await self._create_topics(plan.topics),
            "schemas": 0 if by_schema is None else await by_schema.register(plan.schemas),
            "records": sum([await self._write(topic, by_schema) for topic in plan.topics if topic.records]),
            "offsets": sum([await self._commit(group) for group in plan.groups if group.offsets]),
            "users": await self._set_passwords(plan.users),
            "ACLs": await self._create_acls(plan.acls),
        }
        return {name: count for name, count in made.items() if count}

    async def _schemas(self, plan: SeedPlan) -> SchemaEncoder | None:
        """Returns an encoder that uses the schemas in the broker's registry, or None if the seed does not use
        schemas."""
        place = await in_thread(self._broker.workers, lambda: plan.uses_schemas)
        if place is None:
            return None
        if not self._broker.config.odradek_schema_registry_enable:
            raise place.error(
                "this needs the schema registry; start the broker with --schema-registry, or set"
                " odradek.schema.registry.enable=true"
            )
        # Imported here because most seeds do not use schemas.
        from odradek.broker.seeds.schemas import SchemaEncoder, opened_registry

        return SchemaEncoder(self._registry or await opened_registry(self._broker, self._client), self._broker.workers)

    async def _create_topics(self, topics: Sequence[SeedTopic]) -> int:
        existing = self._broker.metadata.image.topics
        for topic in topics:
            if topic.name in existing:
                self._compare(topic)
        missing = [topic for topic in topics if topic.name not in existing]
        if not missing:
            return 0
        creations = [
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replicas,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.settings],
            )
            for topic in missing
        ]
        request = CreateTopicsRequest(topics=creations, timeout_ms=TIMEOUT_MS)
        answer = await self._client.ask(request, CreateTopicsResponse)
        places = {topic.name: topic.place for topic in missing}
        for created in answer.topics:
            _check(created.error_code, created.error_message, places[created.name])
        return len(missing)

    def _compare(self, topic: SeedTopic) -> None:
        """Logs how an existing topic differs from the seed. Does not change the topic."""
        image = self._broker.metadata.image
        count = len(image.topics[topic.name].partitions)
        if topic.partitions not in (DEFAULT, count):
            log.warning("%s: the topic %s already exists, and keeps its %d partitions", topic.place, topic.name, count)
        own = image.topic_configs(topic.name)
        differing = [name for name, value in topic.settings if own.get(name) != value]
        if differing:
            log.warning(
                "%s: the topic %s already exists, and keeps its values of %s",
                topic.place,
                topic.name,
                ", ".join(differing),
            )

    async def _write(self, topic: SeedTopic, by_schema: SchemaEncoder | None) -> int:
        seeded = topic.records if by_schema is None else await by_schema.encode_records(topic.records)
        count = len(self._broker.metadata.image.topics[topic.name].partitions)
        now_ms = self._broker.clock.now_ms()
        empty = {
            index for index in range(count) if self._broker.partitions.get(topic.name, index).log.log_end_offset == 0
        }
        batches = await in_thread(self._broker.workers, lambda: _batches(seeded, count, now_ms, empty))
        written = 0
        for partition, (batch, record_count) in sorted(batches.items()):
            data = PartitionProduceData(index=partition, records=batch)
            named = TopicProduceData(name=topic.name, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[named])
            answer = await self._client.ask(request, ProduceResponse, max_version=PRODUCE_WITH_NAMES)
            result = answer.responses[0].partition_responses[0]
            if result.error_code != ErrorCode.NONE.value:
                reason = result.error_message or ErrorCode(result.error_code).name
                place = topic.place.below("records")
                raise place.error(f"the batch with all records of partition {partition} was refused: {reason}")
            written += record_count
        return written

    async def _commit(self, group: SeedGroup) -> int:
        by_topic: dict[str, list[SeedOffset]] = defaultdict(list)
        for each in group.offsets:
            if not self._broker.metadata.image.has_partition((each.topic, each.partition)):
                raise each.place.error(f"the topic {each.topic} has no partition {each.partition}")
            by_topic[each.topic].append(each)
        await self._find_coordinator(group)
        committed = await self._committed(group, by_topic)
        missing = [each for each in group.offsets if (each.topic, each.partition) not in committed]
        if not missing:
            return 0
        partitions: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for each in missing:
            partitions[each.topic].append(
                OffsetCommitRequestPartition(partition_index=each.partition, committed_offset=each.offset)
            )
        topics = [OffsetCommitRequestTopic(name=topic, partitions=rows) for topic, rows in partitions.items()]
        request = OffsetCommitRequest(group_id=group.name, topics=topics)
        answer = await self._client.ask(request, OffsetCommitResponse, max_version=COMMIT_WITH_NAMES)
        places = {(each.topic, each.partition): each.place for each in missing}
        for topic in answer.topics:
            for result in topic.partitions:
                _check(result.error_code, None, places[topic.name, result.partition_index])
        return len(missing)

    async def _find_coordinator(self, group: SeedGroup) -> None:
        """Waits until `__consumer_offsets` exists. The first request creates this topic."""
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group.name])
        for _ in range(MAX_ATTEMPTS):
            (found,) = (await self._client.ask(request, FindCoordinatorResponse)).coordinators
            if found.error_code not in COORDINATOR_NOT_READY:
                return _check(found.error_code, found.error_message, group.place)
            await asyncio.sleep(POLL_INTERVAL_S)
        raise group.place.error("the coordinator of the group is not available")

    async def _committed(self, group: SeedGroup, by_topic: dict[str, list[SeedOffset]]) -> set[tuple[str, int]]:
        """Waits for the coordinator to load the group. Returns the partitions for which the group has an offset."""
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[each.partition for each in offsets])
            for topic, offsets in by_topic.items()
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group.name, topics=topics)])
        for _ in range(MAX_ATTEMPTS):
            answer = await self._client.ask(request, OffsetFetchResponse, max_version=FETCH_OFFSETS_WITH_NAMES)
            (found,) = answer.groups
            if found.error_code not in COORDINATOR_NOT_READY:
                _check(found.error_code, None, group.place)
                return {
                    (topic.name, each.partition_index)
                    for topic in found.topics
                    for each in topic.partitions
                    if each.committed_offset >= 0
                }
            await asyncio.sleep(POLL_INTERVAL_S)
        raise group.place.error("the coordinator of the group has not finished loading")

    async def _set_passwords(self, users: Sequence[SeedUser]) -> int:
        existing = self._broker.metadata.image.scram_credentials
        missing = [user for user in users if existing.find(user.name, user.mechanism.value) is None]
        for user in missing:
            salt = secrets.token_bytes(NEW_SALT_BYTES)
            upsertion = await in_thread(
                self._broker.workers,
                partial(scram_upsertion, user.name, user.mechanism, user.password, user.iterations, salt),
            )
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            (result,) = (await self._client.ask(request, AlterUserScramCredentialsResponse)).results
            _check(result.error_code, result.error_message, user.place)
        return len(missing)

    async def _create_acls(self, acls: Sequence[SeedAcl]) -> int:
        if not acls:
            return 0
        creations = [
            AclCreation(
                resource_type=acl.resource_type.value,
                resource_name=acl.resource,
                resource_pattern_type=acl.pattern_type.value,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation.value,
                permission_type=acl.permission.value,
            )
            for acl in acls
        ]
        first = self._broker.metadata.image.next_offset
        answer = await self._client.ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for acl, result in zip(acls, answer.results, strict=True):
            _check(result.error_code, result.error_message, acl.place)
        return self._broker.metadata.image.next_offset - first  # one record was written for each ACL that did not exist


def _batches(
    seeded: Sequence[SeedRecord], partition_count: int, now_ms: int, empty: Container[int]
) -> dict[int, tuple[bytearray, int]]:
    """For each partition in `empty` that receives records, returns one batch and its number of records. Raises
    SeedError."""
    records: dict[int, list[NewRecord]] = defaultdict(list)
    for partition, record in _with_partitions(seeded, partition_count):
        if partition in empty:
            time_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            key, value = _as_bytes(record.key), _as_bytes(record.value)
            records[partition].append(NewRecord(key, value, time_ms, record.headers))
    return {partition: (build_batch(each), len(each)) for partition, each in records.items()}


def _with_partitions(records: Sequence[SeedRecord], partition_count: int) -> Iterator[tuple[int, SeedRecord]]:
    """Yields the records in order, each with the partition chosen for it. Raises SeedError if a record names a
    partition that does not exist."""
    without_key = 0
    for record in records:
        if record.partition is not None:
            if record.partition >= partition_count:
                place = record.place.below("partition")
                raise place.error(f"the topic has {partition_count} partitions, which are numbered from 0")
            yield record.partition, record
        elif record.key is not None:
            yield partition_for_key(_as_bytes(record.key) or b"", partition_count), record
        else:
            yield without_key % partition_count, record
            without_key += 1


def _as_bytes(content: bytes | JsonContent | None) -> bytes | None:
    assert not isinstance(content, JsonContent), "JSON content has already been encoded with its schema"
    return content


def _check(error_code: int, message: str | None, place: Place) -> None:
    """Raises SeedError if the request was refused."""
    if error_code != ErrorCode.NONE.value:
        raise place.error(message or ErrorCode(error_code).name)
