"""Scripts for Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, InitProducerId and
DescribeProducers."""

import struct
import time
import zlib
from collections.abc import Callable

import crc32c

from odradek.protocol.compression import Compression
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.describe_producers_request import TopicRequest as ProducersOf
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records import NewRecord, build_batch
from tests.conformance.differential.conversation import Talk

NOW_MS = int(time.time() * 1000)
FAR_AHEAD_MS = 4_000_000_000_000
BASE_MS = 1_700_000_000_000  # a time in 2023, which cannot be mistaken for the present
NOBODY = bytes(range(16))  # an unknown topic id
CRC_AT, CRC_FROM = 17, 21


def batch(*values: bytes, key: bytes | None = b"k", at_ms: int = BASE_MS, **how: object) -> bytes:
    records = [NewRecord(key, value, at_ms + n) for n, value in enumerate(values)]
    return bytes(build_batch(records, **how))  # type: ignore[arg-type]


def patched(good: bytes, position: int, format: str, value: int, *, sealed: bool = True) -> bytes:
    """Returns a copy of `good` in which one number is replaced. Recomputes the CRC unless `sealed` is false."""
    changed = bytearray(good)
    struct.pack_into(format, changed, position, value)
    if sealed:
        struct.pack_into(">I", changed, CRC_AT, crc32c.crc32c(bytes(changed[CRC_FROM:])))
    return bytes(changed)


LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, BASE_TIME_AT, MAX_TIME_AT = 8, 16, 21, 23, 27, 35
PRODUCER_AT, EPOCH_AT, SEQUENCE_AT, COUNT_AT, RECORDS_AT = 43, 51, 53, 57, 61
GOOD = batch(b"one", b"two", b"three")


def magic_1(value: bytes) -> bytes:
    """Returns a message with magic 1, the format of clients older than 0.11, which do not know record batches."""
    body = struct.pack(">bbqi", 1, 0, BASE_MS, -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


WRONG_BATCHES: dict[str, bytes | None] = {
    "null": None,
    "nothing": b"",
    "shorter than a header": GOOD[:40],
    "cut in its records": GOOD[:-3],
    "wrong crc": patched(GOOD, CRC_AT, ">I", 12345, sealed=False),
    "magic 1": magic_1(b"old"),
    "magic 3": patched(GOOD, MAGIC_AT, ">b", 3),
    "negative magic": patched(GOOD, MAGIC_AT, ">b", -1),
    "length too large": patched(GOOD, LENGTH_AT, ">i", len(GOOD)),
    "length too small": patched(GOOD, LENGTH_AT, ">i", 20),
    "length negative": patched(GOOD, LENGTH_AT, ">i", -5),
    "length zero": patched(GOOD, LENGTH_AT, ">i", 0),
    "two batches": GOOD + GOOD,
    "bytes behind the batch": GOOD + b"\0" * 5,
    "count too large": patched(GOOD, COUNT_AT, ">i", 4),
    "count too small": patched(GOOD, COUNT_AT, ">i", 2),
    "count zero": patched(GOOD, COUNT_AT, ">i", 0),
    "count negative": patched(GOOD, COUNT_AT, ">i", -1),
    "last delta too large": patched(GOOD, LAST_DELTA_AT, ">i", 5),
    "last delta negative": patched(GOOD, LAST_DELTA_AT, ">i", -1),
    "base offset not zero": patched(GOOD, 0, ">q", 7),
    "a control batch": patched(GOOD, ATTRIBUTES_AT, ">h", 32),
    "a transactional batch without producer": patched(GOOD, ATTRIBUTES_AT, ">h", 16),
    "append time set by the client": patched(GOOD, ATTRIBUTES_AT, ">h", 8),
    "a delete horizon set by the client": patched(GOOD, ATTRIBUTES_AT, ">h", 64),
    "unknown codec 5": patched(GOOD, ATTRIBUTES_AT, ">h", 5),
    "unused attributes": patched(GOOD, ATTRIBUTES_AT, ">h", 0x7F00),
    "says gzip but is not": patched(GOOD, ATTRIBUTES_AT, ">h", 1),
    "says zstd but is not": patched(GOOD, ATTRIBUTES_AT, ">h", 4),
    "says lz4 but is not": patched(GOOD, ATTRIBUTES_AT, ">h", 3),
    "says snappy but is not": patched(GOOD, ATTRIBUTES_AT, ">h", 2),
    "a record longer than the batch": patched(GOOD, RECORDS_AT, ">b", 0x7E),
    "a record of negative length": patched(GOOD, RECORDS_AT, ">b", 1),
    "a record shorter than its parts": patched(GOOD, RECORDS_AT, ">b", 8),
    "an offset delta of another record": patched(GOOD, RECORDS_AT + 3, ">b", 6),
    "a key longer than the record": patched(GOOD, RECORDS_AT + 4, ">b", 100),
    "a wrong max timestamp": patched(GOOD, MAX_TIME_AT, ">q", BASE_MS - 9),
    "max timestamp -1": patched(GOOD, MAX_TIME_AT, ">q", -1),
    "too far in the future": batch(b"later", at_ms=FAR_AHEAD_MS),
    "no timestamp": batch(b"v", at_ms=-1),
    "a negative timestamp": batch(b"v", at_ms=-1000),
    "producer id without epoch": patched(GOOD, PRODUCER_AT, ">q", 5),
    "producer id below -1": patched(GOOD, PRODUCER_AT, ">q", -2),
    "epoch and sequence without producer id": patched(patched(GOOD, EPOCH_AT, ">h", 0), SEQUENCE_AT, ">i", 0),
    "too large": batch(bytes(1_100_000)),
    "too large, compressed small": batch(bytes(1_500_000), compression=Compression.GZIP),
}


def new_producer_id(talk: Talk) -> int:
    """Returns a new producer id. Kafka answers COORDINATOR_LOAD_IN_PROGRESS until it has a block of ids."""
    while (answer := talk.quietly(InitProducerIdRequest(transactional_id=None), 4)).error_code == 14:
        time.sleep(0.05)
    producer_id: int = answer.producer_id
    return producer_id


class Producer:
    """Sends Produce at one version, which identifies topics by name or by id."""

    def __init__(self, talk: Talk, version: int) -> None:
        self.talk, self.version = talk, version
        self._ids: dict[str, bytes] = {}

    def make_topic(self, name: str, partitions: int = 1, **config: object) -> str:
        self._ids[name] = self.talk.make_topic(name, partitions, **config)
        return name

    def topic(self, name: str, **parts: bytes | None) -> TopicProduceData:
        data = [PartitionProduceData(index=int(index[1:]), records=records) for index, records in parts.items()]
        if self.version >= 13:
            return TopicProduceData(topic_id=self._ids.get(name, NOBODY), partition_data=data)
        return TopicProduceData(name=name, partition_data=data)

    def request(self, *topics: TopicProduceData, acks: int = -1) -> ProduceRequest:
        return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=list(topics))

    def put(self, label: str, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> None:
        request = self.request(self.topic(topic, **{f"p{partition}": records}), acks=acks)
        self.talk.ask(label, request, self.version)


def offsets(talk: Talk, label: str, topic: str, *timestamps: int, version: int = 7) -> None:
    for timestamp in timestamps:
        when = "now" if timestamp == NOW_MS else timestamp
        parts = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
        talk.ask(f"{label} at {when}", request, version)


def everything(talk: Talk, topic: str, topic_id: bytes, partition: int = 0, label: str | None = None) -> None:
    """Fetches all batches of a partition to compare all their fields."""
    part = FetchPartition(partition=partition, partition_max_bytes=5_000_000)
    fetch_topic = FetchTopic(topic_id=topic_id, partitions=[part])
    talk.ask(
        label or f"content of {topic}-{partition}", FetchRequest(max_wait_ms=1, min_bytes=0, topics=[fetch_topic]), 13
    )


def produce(talk: Talk, version: int) -> None:
    to = Producer(talk, version)
    name = to.make_topic(f"produce-{version}", 2)
    for codec in Compression:
        to.put(f"codec {codec.name}", name, batch(b"a" * 100, b"b" * 100, compression=codec))
    to.put("acks 1", name, GOOD, acks=1)
    to.put("acks 2", name, GOOD, acks=2)
    to.put("acks -2", name, GOOD, acks=-2)
    both = to.request(to.topic(name, p0=GOOD, p1=GOOD))
    talk.ask("two partitions", both, version)
    talk.ask("one good, one unknown", to.request(to.topic(name, p0=GOOD, p7=GOOD)), version)
    talk.ask(
        "two topics, one unknown", to.request(to.topic(name, p1=GOOD), to.topic("nobody-made-this", p0=GOOD)), version
    )
    talk.ask("no topics", to.request(), version)
    to.put("a negative partition", name, GOOD, partition=-1)
    talk.send("acks 0", to.request(to.topic(name, p1=GOOD), acks=0), version)
    offsets(talk, "after acks 0", name, -1)
    everything(talk, name, to._ids[name])
    everything(talk, name, to._ids[name], 1)


def produce_wrong(talk: Talk, version: int) -> None:
    to = Producer(talk, version)
    name = to.make_topic(f"produce-wrong-{version}", len(WRONG_BATCHES))
    for partition, (label, wrong) in enumerate(WRONG_BATCHES.items()):
        if wrong is None and version not in (3, 9, 13):
            continue  # Kafka never responds to null records. Waiting once per encoding is enough.
        to.put(label, name, wrong, partition=partition)
        everything(talk, name, to._ids[name], partition, f"content after {label}")


def produce_settings(talk: Talk, version: int) -> None:
    to = Producer(talk, version)
    compacted = to.make_topic(f"compacted-{version}", cleanup_policy="compact")
    to.put("without key", compacted, batch(b"v", key=None))
    to.put("some without key", compacted, bytes(build_batch([NewRecord(b"k", b"", 1), NewRecord(None, b"", 1)])))
    to.put("with key", compacted, GOOD)
    to.put("a tombstone", compacted, bytes(build_batch([NewRecord(b"k", None, BASE_MS)])))
    stamped = to.make_topic(f"append-time-{version}", message_timestamp_type="LogAppendTime")
    to.put("append time", stamped, GOOD)
    to.put("append time, far ahead", stamped, batch(b"v", at_ms=FAR_AHEAD_MS))
    to.put("append time, gzip", stamped, batch(b"v" * 99, compression=Compression.GZIP))
    small = to.make_topic(f"small-{version}", max_message_bytes=200)
    to.put("at the limit", small, batch(b"v" * (200 - 61 - 12)))
    to.put("above the limit", small, batch(b"v" * 200))
    for codec in ("zstd", "lz4", "snappy", "gzip", "uncompressed"):
        other = to.make_topic(f"as-{codec}-{version}", compression_type=codec)
        to.put(f"none to {codec}", other, batch(b"a" * 100, b"b" * 100))
        to.put(f"gzip to {codec}", other, batch(b"a" * 100, b"b" * 100, compression=Compression.GZIP))
        everything(talk, other, to._ids[other])
    past = to.make_topic(f"past-{version}", message_timestamp_before_max_ms=1000)
    to.put("too old", past, GOOD)
    to.put("new enough", past, batch(b"v", at_ms=NOW_MS))
    for name in (compacted, stamped, small, past):
        everything(talk, name, to._ids[name])


def produce_idempotent(talk: Talk, version: int) -> None:
    to = Producer(talk, version)
    name = to.make_topic(f"idempotent-{version}")
    producer_id = new_producer_id(talk)

    def send(label: str, sequence: int, epoch: int = 0, count: int = 2, producer: int = producer_id) -> None:
        sent = batch(
            *[b"%d" % n for n in range(count)], producer_id=producer, producer_epoch=epoch, base_sequence=sequence
        )
        to.put(f"{label} (epoch {epoch}, sequence {sequence}, {count} records)", name, sent)

    send("does not begin at 0", 5)
    send("first", 0)
    send("the same again", 0)
    for sequence in (2, 4, 6, 8, 10):
        send("next", sequence)
    send("duplicate within the last five", 4)
    send("duplicate within the last five", 2)
    send("duplicate out of the window", 0)
    send("a gap", 20)
    send("overlaps the last", 11)
    send("part of a batch that is there", 10, count=1)
    send("a newer epoch that does not begin at 0", 3, epoch=1)
    send("a newer epoch", 0, epoch=1)
    send("an older epoch", 12, epoch=0)
    send("an older epoch again", 0, epoch=0)
    send("goes on", 2, epoch=1)
    send("negative sequence", -1, epoch=1)
    send("negative epoch", 4, epoch=-1)
    send("wraps", 2**31 - 1, epoch=3)
    send("an unknown producer", 7, producer=producer_id + 900)
    send("an unknown producer from 0", 0, producer=producer_id + 901)
    transactional = batch(b"t", producer_id=producer_id, producer_epoch=1, base_sequence=4, is_transactional=True)
    if version < 12:
        to.put("transactional without a transactional id", name, transactional)
    describe_request = DescribeProducersRequest(topics=[ProducersOf(name=name, partition_indexes=[0, 3])])
    talk.ask("its producers", describe_request, 0)
    everything(talk, name, to._ids[name])


def sequence_wraps(talk: Talk, version: int) -> None:
    """Sends sequence numbers around 2147483647, which is followed by 0. A sequence can also wrap within a batch."""
    to = Producer(talk, version)
    name = to.make_topic(f"wraps-{version}")
    producer_id = new_producer_id(talk)
    last = 2**31 - 1
    # The last offset delta claims two billion records, which the script could not send.
    far = patched(
        batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0), LAST_DELTA_AT, ">i", last - 2
    )
    to.put("a batch that claims to be long", name, far)
    for sequence in (last - 1, last, 1, 3):
        sent = batch(b"a", b"b", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        to.put(f"sequence {sequence}", name, sent)


def fetch(talk: Talk, version: int) -> None:
    to = Producer(talk, 11)
    name = to.make_topic(f"fetch-{version}", 2)
    topic_id = to._ids[name]
    for n in range(4):
        to.put("preparation", name, batch(*[b"%d" % (n * 5 + i) * 20 for i in range(5)], at_ms=BASE_MS + n * 1000))

    def topic(*parts: FetchPartition, of: str = name, id: bytes = topic_id) -> FetchTopic:
        partitions = list(parts)
        return (
            FetchTopic(topic_id=id, partitions=partitions)
            if version >= 13
            else FetchTopic(topic=of, partitions=partitions)
        )

    def part(offset: int, partition: int = 0, limit: int = 1_000_000, **more: int) -> FetchPartition:
        return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit, **more)  # type: ignore[arg-type]

    def get(label: str, *topics: FetchTopic, **more: int) -> None:
        settings = {"max_wait_ms": 1, "min_bytes": 0, "max_bytes": 50_000_000} | more
        talk.ask(label, FetchRequest(topics=list(topics), **settings), version)  # type: ignore[arg-type]

    get("all", topic(part(0)))
    get("from inside a batch", topic(part(7)))
    get("at the end", topic(part(20)))
    get("behind the end", topic(part(21)))
    get("before the start", topic(part(-1)))
    get("an empty partition", topic(part(0, partition=1)))
    get("behind the end of an empty partition", topic(part(1, partition=1)))
    get("an unknown partition", topic(part(0, partition=5)))
    get("a negative partition", topic(part(0, partition=-3)))
    get("an unknown topic", topic(part(0), of="nobody-made-this", id=NOBODY))
    get("one byte at most", topic(part(0)), max_bytes=1)
    get("one byte of the partition at most", topic(part(0, limit=1)))
    get("the size of two batches at most", topic(part(0, limit=400)))
    get("the same partition twice", topic(part(0, limit=1), part(5, limit=1)))
    get("two partitions, enough for one", topic(part(0), part(0, partition=1)), max_bytes=1)
    get("no topics")
    get("read committed", topic(part(0)), isolation_level=1)
    get("unknown isolation", topic(part(0)), isolation_level=2)
    get("waits in vain", topic(part(20)), max_wait_ms=50, min_bytes=1)
    get("an old leader epoch", topic(part(0, current_leader_epoch=0)))
    get("a future leader epoch", topic(part(0, current_leader_epoch=9)))
    get("last fetched epoch", topic(part(20, last_fetched_epoch=0)))
    get("last fetched epoch ahead", topic(part(20, last_fetched_epoch=5)))
    get("a parted history, read committed", topic(part(99, last_fetched_epoch=0)), isolation_level=1)
    get("a negative limit", topic(part(0, limit=-1)))
    get("a negative limit behind the end", topic(part(21, limit=-1)))
    get("a negative limit at the end", topic(part(20, limit=-1)))
    get("a negative limit of an empty partition", topic(part(0, partition=1)), max_bytes=-1)
    talk.ask("as a follower", FetchRequest(replica_id=3, max_wait_ms=1, topics=[topic(part(0))]), version)


def fetch_session(talk: Talk, version: int) -> None:
    to = Producer(talk, 11)
    name, other = to.make_topic(f"session-{version}", 2), to.make_topic(f"session-other-{version}")
    to.put("preparation", name, GOOD)

    def topic(of: str, *offsets: int) -> FetchTopic:
        partitions = [
            FetchPartition(partition=n, fetch_offset=o, partition_max_bytes=100_000) for n, o in enumerate(offsets)
        ]
        if version >= 13:
            return FetchTopic(topic_id=to._ids[of], partitions=partitions)
        return FetchTopic(topic=of, partitions=partitions)

    def forget(of: str, *partitions: int) -> list[ForgottenTopic]:
        which = list(partitions)
        if version >= 13:
            return [ForgottenTopic(topic_id=to._ids[of], partitions=which)]
        return [ForgottenTopic(topic=of, partitions=which)]

    def get(
        label: str, session: int, epoch: int, *topics: FetchTopic, without: list[ForgottenTopic] | None = None
    ) -> int:
        request = FetchRequest(
            max_wait_ms=1,
            session_id=session,
            session_epoch=epoch,
            topics=list(topics),
            forgotten_topics_data=without or [],
        )
        answer = talk.ask(label, request, version)
        return answer.session_id if answer is not None else 0

    get("no session", 0, -1, topic(name, 0, 0))
    session = get("a new session", 0, 0, topic(name, 0, 0), topic(other, 0))
    get("nothing new, so the first again", session, 1)
    get("moved on", session, 2, topic(name, 3))
    to.put("more", other, GOOD)
    get("only what changed", session, 3)
    get("the last epoch again", session, 3)
    get("an epoch ahead", session, 9)
    get("without the other topic", session, 4, without=forget(other, 0))
    to.put("still more", other, GOOD)
    get("does not see the other topic", session, 5)
    get("adds it again", session, 6, topic(other, 3))
    get("an unknown session", session + 1234567, 1)
    get("closes the session", session, -1, topic(name, 0))
    get("the closed session", session, 7)


def list_offsets(talk: Talk, version: int) -> None:
    to = Producer(talk, 11)
    name = to.make_topic(f"offsets-{version}", 2)
    for n in range(3):
        to.put("preparation", name, batch(b"a", b"b", at_ms=BASE_MS + (5, 9, 7)[n] * 100))
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, BASE_MS, BASE_MS + 700, BASE_MS + 901, BASE_MS + 902, NOW_MS):
        offsets(talk, "offset", name, timestamp, version=version)
    empty = ListOffsetsTopic(
        name=name, partitions=[ListOffsetsPartition(partition_index=1, timestamp=at) for at in (-1,)]
    )
    talk.ask("of an empty partition", ListOffsetsRequest(replica_id=-1, topics=[empty]), version)
    for at in (-2, -3, 0):
        parts = [ListOffsetsPartition(partition_index=1, timestamp=at)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
        talk.ask(f"of an empty partition at {at}", request, version)
    for label, partition, epoch in (("old epoch", 0, 0), ("future epoch", 0, 7), ("unknown partition", 9, -1)):
        parts = [ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=-1)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
        talk.ask(label, request, version)
    offsets(talk, "unknown topic", "nobody-made-this", -1, version=version)
    parts = [ListOffsetsPartition(partition_index=0, timestamp=at) for at in (-1, -2)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
    talk.ask("the same partition twice", request, version)
    parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    talk.ask("no topics", ListOffsetsRequest(replica_id=-1), version)
    for isolation in (1, 3):
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=name, partitions=parts)]
        )
        talk.ask(f"isolation {isolation}", request, version)


def delete_records(talk: Talk, version: int) -> None:
    to = Producer(talk, 11)
    name = to.make_topic(f"delete-records-{version}", 2)
    for _ in range(3):
        to.put("preparation", name, batch(b"a", b"b"))

    def delete(label: str, offset: int, topic: str = name, partition: int = 0) -> None:
        parts = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=10_000)
        talk.ask(label, request, version)

    delete("inside a batch", 3)
    offsets(talk, "then", name, -1, -2)
    everything(talk, name, to._ids[name])
    delete("back", 1)
    delete("beyond the end", 7)
    delete("below -1", -2)
    delete("to the end", -1)
    offsets(talk, "then", name, -1, -2)
    delete("an unknown partition", 0, partition=7)
    delete("an unknown topic", 0, topic="nobody-made-this")
    delete("an internal topic", 0, topic="__consumer_offsets")
    delete("an empty partition", -1, partition=1)
    talk.ask("no topics", DeleteRecordsRequest(timeout_ms=100), version)
    to.put("goes on", name, GOOD)


def offset_for_leader_epoch(talk: Talk, version: int) -> None:
    to = Producer(talk, 11)
    name = to.make_topic(f"epochs-{version}")
    to.put("preparation", name, GOOD)

    def ask(label: str, epoch: int, topic: str = name, partition: int = 0, current: int = -1) -> None:
        epoch_partition = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [OffsetForLeaderTopic(topic=topic, partitions=[epoch_partition])]
        replica = {} if version < 3 else {"replica_id": -1}
        talk.ask(label, OffsetForLeaderEpochRequest(topics=topics, **replica), version)

    for epoch in (-2, -1, 0, 1, 5):
        ask(f"epoch {epoch}", epoch)
    ask("current epoch", 0, current=0)
    ask("an old current epoch", 0, current=-2)
    ask("a future current epoch", 0, current=9)
    ask("an unknown partition", 0, partition=4)
    ask("an unknown topic", 0, topic="nobody-made-this")


def init_producer_id(talk: Talk, version: int) -> None:
    new_producer_id(talk)
    talk.ask("an id", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), version)
    talk.ask("another", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1), version)
    talk.ask("no timeout", InitProducerIdRequest(transactional_id=None), version)
    talk.ask("an empty transactional id", InitProducerIdRequest(transactional_id=""), version)
    for producer_id, epoch in ((5, 0), (5, -1), (-1, 3)):
        request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
        talk.ask(f"with producer id {producer_id} and epoch {epoch}", request, version)


def describe_producers(talk: Talk, version: int) -> None:
    to = Producer(talk, 11)
    name = to.make_topic(f"producers-{version}", 2)
    for _ in range(2):
        producer_id = new_producer_id(talk)
        to.put(
            "by an idempotent producer",
            name,
            batch(b"a", b"b", producer_id=producer_id, producer_epoch=0, base_sequence=0),
        )
    topics = [ProducersOf(name=name, partition_indexes=[0, 1, 2]), ProducersOf(name="nobody", partition_indexes=[0])]
    talk.ask("producers", DescribeProducersRequest(topics=topics), version)
    talk.ask(
        "of an invalid topic",
        DescribeProducersRequest(topics=[ProducersOf(name="a b", partition_indexes=[0])]),
        version,
    )
    talk.ask("of nothing", DescribeProducersRequest(), version)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {  # API key of each script, which runs at all versions of that API
    produce: 0,
    produce_wrong: 0,
    produce_settings: 0,
    produce_idempotent: 0,
    sequence_wraps: 0,
    fetch: 1,
    fetch_session: 1,
    list_offsets: 2,
    delete_records: 21,
    init_producer_id: 22,
    offset_for_leader_epoch: 23,
    describe_producers: 61,
}
