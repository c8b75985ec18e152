"""A table of Produce requests and the broker's answers, which tests compare with our validation and with Apache Kafka.

Every case was observed with Kafka 4.4.0. If Odradek's answer differs, the case also has Kafka's answer and the reason.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import cramjam

from odradek.protocol.compression import Compression, compress
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.records import NewRecord, build_batch
from tests.support.batches import batch_of, changed, good_batch, record, record_of

NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)

PLAIN: Mapping[str, str] = {}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact"}
LIMITED_TIME = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "120000"}
SMALL = {"max.message.bytes": "200"}
SMALL_SEGMENTS = {"segment.bytes": "1048576", "max.message.bytes": "5000000"}


def stored_as(compression: str, **more: str) -> dict[str, str]:
    return {"compression.type": compression} | {name.replace("_", "."): value for name, value in more.items()}


POISON = "consumers would read other offsets than the broker counts, or fail"
BUG_OF_KAFKA = "an unforeseen exception, told as UNKNOWN_SERVER_ERROR"


@dataclass(frozen=True, slots=True)
class ProduceCase:
    """The records for a partition in a Produce request, and the answer. `kafka` and `why` are set if Kafka's answer
    differs."""

    name: str
    records: bytes | bytearray
    code: E
    version: int = 8
    topic: Mapping[str, str] = field(default_factory=dict)
    kafka: E | None = None
    why: str | None = None
    transactional_id: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    message: str | None = None
    is_whole_request: bool = False  # whether the broker refuses the complete request

    def __str__(self) -> str:
        return self.name


TIME_MESSAGE = "One or more records have been rejected due to invalid timestamp"


def no_key(topic_partition: str = "TOPIC-0") -> str:
    return f"Compacted topic cannot accept message without key in topic partition {topic_partition}"


def out_of_range(timestamp: int, index: int, earliest: int, latest: int) -> str:
    return (
        f"Timestamp {timestamp} of message with offset {index} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def key_message(count: int, *indexes: int) -> str:
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{no_key()}')" for index in indexes)
    return (
        f"One or more records have been rejected due to {count} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


def requests(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about the frame, which the broker checks before reading any batch."""
    good = good_batch(now_ms=now_ms)
    for version in range(3, 9):
        yield ProduceCase(f"one good batch in version {version}", good, E.NONE, version)
    yield ProduceCase("no bytes", b"", E.INVALID_RECORD)
    for size in (11, 16, 17, 60, len(good) - 1):
        yield ProduceCase(f"a batch cut short after {size} bytes", good[:size], E.INVALID_RECORD)
    yield ProduceCase("two batches", good + good, E.INVALID_RECORD)
    yield ProduceCase("a batch cut short behind a good one", good + good[:20], E.NONE)
    yield ProduceCase("five bytes behind a good one", good + b"\xff" * 5, E.NONE)
    yield ProduceCase("garbage behind a good one", good + b"\xff" * 30, E.CORRUPT_MESSAGE)
    yield ProduceCase("zeros behind a good one", good + bytes(30), E.CORRUPT_MESSAGE)
    for magic in (0, 1):
        yield ProduceCase(f"magic {magic}", changed(good, seal=False, magic=magic), E.INVALID_RECORD)
    for magic in (3, -1):
        yield ProduceCase(
            f"magic {magic}",
            changed(good, seal=False, magic=magic),
            E.CORRUPT_MESSAGE,
            message=f"Invalid magic found in record: {magic}",
            is_whole_request=True,
        )
    for length in (13, -1):
        yield ProduceCase(
            f"length {length}",
            changed(good, seal=False, batch_length=length),
            E.CORRUPT_MESSAGE,
            message=f"Record size {length} is less than the minimum record overhead (14)",
            is_whole_request=True,
        )
    yield ProduceCase("length 48", changed(good, seal=False, batch_length=48)[:60], E.CORRUPT_MESSAGE)
    short = changed(good, seal=False, batch_length=14)[:26]
    yield ProduceCase("length 14", short, E.CORRUPT_MESSAGE, kafka=E.UNKNOWN_SERVER_ERROR, why=BUG_OF_KAFKA)
    yield ProduceCase(
        "a length that is one too large", changed(good, seal=False, batch_length=len(good) - 11), E.INVALID_RECORD
    )
    yield ProduceCase(
        "a length that is one too small", changed(good, seal=False, batch_length=len(good) - 13), E.CORRUPT_MESSAGE
    )


def headers(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about the header, the 61 bytes before the records."""
    good = good_batch(now_ms=now_ms)
    zstd = good_batch(compression=ZSTD, now_ms=now_ms)
    bad_crc = changed(good, crc=1)
    yield ProduceCase("a wrong CRC", bad_crc, E.CORRUPT_MESSAGE)
    yield ProduceCase("a base offset other than 0", changed(good, base_offset=5), E.INVALID_RECORD)
    yield ProduceCase("a wrong CRC and a base offset", changed(bad_crc, base_offset=5, crc=1), E.INVALID_RECORD)
    yield ProduceCase("any leader epoch", changed(good, leader_epoch=77), E.NONE)
    for codec in (5, 6, 7):
        yield ProduceCase(f"compression type {codec}", changed(good, attributes=codec), E.UNKNOWN_SERVER_ERROR)
    yield ProduceCase("compression type 5 and a wrong CRC", changed(good, seal=False, attributes=5), E.CORRUPT_MESSAGE)
    yield ProduceCase("zstd in version 6", zstd, E.UNSUPPORTED_COMPRESSION_TYPE, 6)
    yield ProduceCase("zstd in version 6, twice", zstd + zstd, E.UNSUPPORTED_COMPRESSION_TYPE, 6)
    yield ProduceCase("zstd in version 7", zstd, E.NONE, 7)
    yield ProduceCase("the bit of LogAppendTime", changed(good, attributes=0x08), E.NONE)
    yield ProduceCase("the bit of the delete horizon", changed(good, attributes=0x40), E.NONE)
    yield ProduceCase("a bit that means nothing", changed(good, attributes=0x80), E.NONE)
    yield ProduceCase("the highest bit", changed(good, attributes=-32768), E.NONE)
    yield ProduceCase("the bit of control batches", changed(good, attributes=0x20), E.INVALID_RECORD)
    marker = marker_batch(producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=now_ms)
    yield ProduceCase("a marker", changed(marker, attributes=0x20), E.INVALID_RECORD)
    yield ProduceCase(
        "a transactional batch without producer id",
        changed(good, attributes=0x10),
        E.INVALID_RECORD,
        kafka=E.NONE,
        why="no marker can ever end that transaction",
        transactional_id="t",
    )
    yield ProduceCase(
        "a producer id without sequence", changed(good, producer_id=77, producer_epoch=0), E.INVALID_RECORD
    )
    yield ProduceCase("a sequence without producer id", changed(good, base_sequence=5), E.NONE)
    yield ProduceCase("an epoch without producer id", changed(good, producer_epoch=5), E.NONE)
    yield ProduceCase("producer id -2", changed(good, producer_id=-2, base_sequence=0), E.NONE)
    for count, delta in ((0, -1), (0, 0), (-1, -2), (-1, 0), (1, 1), (2, 0), (1, -1), (-(2**31), 2**31 - 1)):
        yield ProduceCase(
            f"{count} records, last offset delta {delta}",
            batch_of(record(), count, last_offset_delta=delta, base_timestamp=now_ms),
            E.INVALID_RECORD,
        )
    yield ProduceCase("a header and nothing else", changed(good, batch_length=49)[:61], E.CORRUPT_MESSAGE)
    yield ProduceCase("no records at all", batch_of(b"", 0, base_timestamp=now_ms), E.INVALID_RECORD)


def sizes(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about `max.message.bytes` and `segment.bytes`, before and after compression."""

    def sized(size: int, compression: Compression = NONE) -> bytearray:
        return build_batch([NewRecord(None, b"x" * size, now_ms)], compression=compression)

    overhead = 200 - len(sized(100)) + 100  # size of the value in a batch of 200 bytes
    yield ProduceCase("as large as allowed", sized(overhead), E.NONE, topic=SMALL)
    yield ProduceCase("one byte larger than allowed", sized(overhead + 1), E.MESSAGE_TOO_LARGE, topic=SMALL)
    yield ProduceCase("too large, with a wrong CRC", changed(sized(500), crc=1), E.MESSAGE_TOO_LARGE, topic=SMALL)
    yield ProduceCase("too large, and a base offset", changed(sized(500), base_offset=5), E.INVALID_RECORD, topic=SMALL)
    yield ProduceCase("too large, and a count", changed(sized(500), record_count=5), E.MESSAGE_TOO_LARGE, topic=SMALL)
    yield ProduceCase("small because it is compressed", sized(5000, GZIP), E.NONE, topic=SMALL)
    small_zstd = stored_as("zstd", max_message_bytes="300")
    yield ProduceCase("too large, and compressed it would not be", sized(1000), E.MESSAGE_TOO_LARGE, topic=small_zstd)
    yield ProduceCase("from one compression to another", sized(1000, GZIP), E.NONE, topic=small_zstd)
    small_plain = stored_as("uncompressed", max_message_bytes="300")
    yield ProduceCase("too large once it is opened", sized(1000, GZIP), E.MESSAGE_TOO_LARGE, topic=small_plain)
    noise = build_batch([NewRecord(None, os.urandom(1_500_000), now_ms)])
    yield ProduceCase("larger than a segment", noise, E.RECORD_LIST_TOO_LARGE, topic=SMALL_SEGMENTS)


def decompressed_sizes(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about `max.decompressed.message.bytes` (docs/spec/kafka-4.4.md#s4-3, M1 to M3)."""
    limit = 1000
    overhead = len(build_batch([NewRecord(b"k", bytes(900), now_ms)])) - 900 - 61 - 2  # the record's length: 2 bytes
    largest, too_large = bytes(limit - overhead), bytes(limit - overhead + 1)
    topic = {"max.decompressed.message.bytes": str(limit)}

    def row(name: str, codec: Compression, *values: bytes, code: E = E.INVALID_RECORD, **more: str) -> ProduceCase:
        batch = build_batch([NewRecord(b"k", value, now_ms) for value in values], compression=codec)
        settings = topic | {name.replace("_", "."): value for name, value in more.items()}
        return ProduceCase(f"{name} ({codec.name})", batch, code, topic=settings)

    for codec in CODECS:
        yield row("a record as large as it may be when decompressed", codec, largest, code=E.NONE)
        yield row("a record too large by one byte when decompressed", codec, too_large)
        yield row("three records within the limit of one", codec, *[bytes(900)] * 3, code=E.NONE)
        yield row("the second record too large when decompressed", codec, b"v", too_large)
        yield row("a record far too large when decompressed", codec, bytes(200_000))
    yield row("a record above the limit of decompressed ones", NONE, too_large, code=E.NONE)
    yield row("compressed by the broker, and above the limit", NONE, too_large, code=E.NONE, compression_type="zstd")
    yield row("another compression, and above the limit", GZIP, too_large, compression_type="zstd")
    yield row("no longer compressed, and above the limit", GZIP, too_large, compression_type="uncompressed")
    yield row("append time, and above the limit", GZIP, too_large, message_timestamp_type="LogAppendTime")
    in_header = build_batch([NewRecord(b"k", b"v", now_ms, (("h", too_large),))], compression=GZIP)
    yield ProduceCase("a header that makes its record too large", in_header, E.INVALID_RECORD, topic=topic)
    ahead = [NewRecord(b"k", b"v", now_ms + 86_400_000), NewRecord(b"k", too_large, now_ms)]
    timed = build_batch(ahead, compression=GZIP)
    yield ProduceCase("a wrong timestamp before a record too large", timed, E.INVALID_RECORD, topic=topic)
    keyless = build_batch([NewRecord(None, b"v", now_ms), NewRecord(b"k", too_large, now_ms)], compression=GZIP)
    yield ProduceCase("no key before a record too large", keyless, E.INVALID_RECORD, topic=topic | COMPACTED)


def records(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about records, once for each compression codec. Kafka checks compressed records less
    thoroughly."""
    for codec in (NONE, *CODECS):
        yield from records_in(codec, now_ms)


def records_in(codec: Compression, now_ms: int) -> Iterator[ProduceCase]:
    def row(
        name: str,
        payload: bytes,
        count: int = 1,
        code: E = E.NONE,
        *,
        kafka: E | None = None,
        why: str | None = None,
        topic: Mapping[str, str] = PLAIN,
    ) -> ProduceCase:
        batch = batch_of(payload, count, compression=codec, base_timestamp=now_ms)
        return ProduceCase(f"{name} ({codec.name})", batch, code, kafka=kafka, why=why, topic=topic)

    bad = E.INVALID_RECORD
    one, two = record(), record() + record(1)
    yield row("two records", two, 2)
    is_plain = codec is NONE
    for deltas in ((0, 0), (1, 0), (5, 9)):
        yield row(
            f"offset deltas {deltas}",
            b"".join(record(delta) for delta in deltas),
            2,
            bad,
            kafka=E.NONE if is_plain else E.UNKNOWN_SERVER_ERROR,
            why=POISON if is_plain else BUG_OF_KAFKA,
        )
    yield row("fewer records than counted", one, 2, bad)
    yield row("more records than counted", two, 1, bad)
    yield row("a byte behind the last record", one + b"\0", 1, bad)
    yield row("nothing to open", b"", 1, bad)
    lax = E.NONE if not is_plain else None
    why = None if is_plain else POISON
    yield row("a record longer than its parts", bytes([one[0] + 2]) + one[1:], 1, bad, kafka=lax, why=why)
    yield row("a record shorter than its parts", bytes([one[0] - 2]) + one[1:], 1, bad, kafka=lax, why=why)
    yield row("a record of negative length", b"\x01" + one[1:], 1, bad)
    yield row("a record of no length", b"\0", 1, bad)
    long = E.UNKNOWN_SERVER_ERROR if is_plain else None
    yield row(
        "a length of six bytes",
        b"\xff" * 5 + b"\x01" + one,
        1,
        bad,
        kafka=long,
        why=BUG_OF_KAFKA if is_plain else None,
    )
    yield row("a length of more bytes than needed", bytes([one[0] | 0x80, 0]) + one[1:])
    yield row("any attributes of a record", one[:1] + b"\xff" + one[2:])
    start = b"\0\0\0"  # attributes and both deltas
    for name, body, code in (
        ("a null key", b"\x01\x02v\0", E.NONE),
        ("a key of length -2", b"\x03\x02v\0", E.NONE),
        ("a value of length -2", b"\x02k\x03\0", E.NONE),
        ("a key beyond its record", b"\x20k\x02v\0", bad),
        ("a value beyond its record", b"\x02k\x20v\0", bad),
        ("no header count", b"\x02k\x02v", bad),
        ("a byte behind the headers", b"\x02k\x02v\0\0", bad),
        ("-1 headers", b"\x02k\x02v\x01", bad),
        ("a header that is not there", b"\x02k\x02v\x02", bad),
        ("a header without key", b"\x02k\x02v\x02\x01\x02v", bad),
        ("a header without value", b"\x02k\x02v\x02\x02h\x01", E.NONE),
        ("a header value of length -2", b"\x02k\x02v\x02\x02h\x03", E.NONE),
        ("a header key that is not UTF-8", b"\x02k\x02v\x02\x02\xff\x01", E.NONE),
        ("a header key beyond its record", b"\x02k\x02v\x02\x08h\x01", bad),
        ("a header value beyond its record", b"\x02k\x02v\x02\x02h\x08", bad),
    ):
        yield row(name, record_of(start + body), 1, code)


def packings(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about compressed data that cannot be decompressed or has an unusual form."""

    def row(name: str, codec: Compression, packed: bytes, code: E = E.NONE) -> ProduceCase:
        batch = batch_of(packed, 2, compression=codec, is_packed=True, base_timestamp=now_ms)
        return ProduceCase(f"{name} ({codec.name})", batch, code)

    one, two = record(), record() + record(1)
    unreadable = E.UNKNOWN_SERVER_ERROR
    for codec in CODECS:
        packed = compress(codec, two)
        yield row("half of it", codec, packed[: len(packed) // 2], unreadable)
        yield row("all but three bytes", codec, packed[:-3], unreadable)
        yield row("garbage", codec, b"garbage1234567", unreadable)
        yield row("no bytes", codec, b"", E.INVALID_RECORD if codec is ZSTD else unreadable)
        behind = unreadable if codec in (SNAPPY, ZSTD) else E.NONE
        yield row("garbage behind it", codec, packed + b"xxxx", behind)
        joined = compress(codec, one) + compress(codec, record(1))
        yield row("two frames", codec, joined, E.INVALID_RECORD if codec is LZ4 else E.NONE)
    yield row("one byte behind it", SNAPPY, compress(SNAPPY, two) + b"x")
    yield row("one byte behind it", ZSTD, compress(ZSTD, two) + b"x", unreadable)
    yield row("without the framing of Kafka's clients", SNAPPY, bytes(cramjam.snappy.compress_raw(two)))
    yield row("blocks that depend on one another", LZ4, bytes(cramjam.lz4.compress(two)), unreadable)


def keys(now_ms: int) -> Iterator[ProduceCase]:
    """Yields the cases about keys, which compacted topics require."""
    for codec in (NONE, GZIP):

        def row(name: str, payload: bytes, count: int, *indexes: int, codec: Compression = codec) -> ProduceCase:
            return ProduceCase(
                f"{name} ({codec.name})",
                batch_of(payload, count, compression=codec, base_timestamp=now_ms),
                E.INVALID_RECORD if indexes else E.NONE,
                topic=COMPACTED,
                record_errors=tuple((index, no_key()) for index in indexes),
                message=key_message(len(indexes), *indexes[:3]) if indexes else None,
            )

        yield row("an empty key", record(key=b""), 1)
        yield row("two of three without key", record(key=None) + record(1) + record(2, key=None), 3, 0, 2)
        yield row("twelve without key", b"".join(record(n, key=None) for n in range(12)), 12, *range(12))
        yield row("a key of length -2", record_of(b"\0\0\0\x03\x02v\0"), 1, 0)


def timestamps(now_ms: int) -> Iterator[ProduceCase]:
    hour, hours = 3_600_000, 7_200_000
    earliest, latest = now_ms - (2**63 - 1), now_ms + hour

    def row(
        name: str,
        payload: bytes,
        count: int = 1,
        errors: Mapping[int, str] | None = None,
        *,
        codec: Compression = NONE,
        base_timestamp: int = now_ms,
        max_timestamp: int | None = None,
        topic: Mapping[str, str] = PLAIN,
        attributes: int = 0,
    ) -> ProduceCase:
        batch = batch_of(payload, count, compression=codec, base_timestamp=base_timestamp, max_timestamp=max_timestamp)
        return ProduceCase(
            f"{name} ({codec.name})",
            changed(batch, attributes=codec.value | attributes),
            E.INVALID_TIMESTAMP if errors else E.NONE,
            topic=topic,
            record_errors=tuple((errors or {}).items()),
            message=TIME_MESSAGE if errors else None,
        )

    for codec in (NONE, LZ4):
        late, old, far = now_ms + hours, now_ms - 600_000, now_ms + 600_000
        yield row("no timestamp", record(), codec=codec, base_timestamp=-1)
        yield row("no timestamp where time is limited", record(), codec=codec, base_timestamp=-1, topic=LIMITED_TIME)
        yield row("a timestamp of 0", record(), codec=codec, base_timestamp=0)
        yield row("a timestamp of -2", record(), codec=codec, base_timestamp=-2)
        yield row("two hours ahead", record(), 1, {0: out_of_range(late, 0, earliest, latest)}, codec=codec,
                  base_timestamp=late)  # fmt: skip
        yield row("two hours ahead by the record alone", record(0, hours), 1,
                  {0: out_of_range(late, 0, earliest, latest)}, codec=codec)  # fmt: skip
        yield row("two hours ahead by the header alone", record(), codec=codec, max_timestamp=late)
        yield row("a largest timestamp of -1", record(), codec=codec, max_timestamp=-1)
        limits = (now_ms - 60_000, now_ms + 120_000)
        yield row(
            "too old, right and too far ahead",
            record(0, -600_000) + record(1) + record(2, 600_000),
            3,
            {0: out_of_range(old, 0, *limits), 2: out_of_range(far, 2, *limits)},
            codec=codec,
            topic=LIMITED_TIME,
        )
        yield row("two hours ahead where the broker sets the time", record(), codec=codec, base_timestamp=late,
                  topic=APPEND_TIME)  # fmt: skip
        yield row(
            "one without key, one too far ahead",
            record(0, hours) + record(1, 0, None),
            2,
            {0: out_of_range(late, 0, earliest, latest), 1: no_key()},
            codec=codec,
            topic=COMPACTED,
        )
        yield row(
            "neither key nor a timestamp in range",
            record(0, hours, None) + record(1, hours),
            2,
            {0: no_key(), 1: out_of_range(late, 1, earliest, latest)},
            codec=codec,
            topic=COMPACTED,
        )
    lowest = out_of_range(-(2**63), 0, earliest, latest)
    yield row("the lowest timestamp there is", record(), 1, {0: lowest}, base_timestamp=-(2**63))
    claim = "Invalid timestamp type in message {}. Producer should not set timestamp type to LogAppendTime."
    mixed = record(0, 0, None, b"abc") + record(1, 0, b"k", None)
    for codec, kind, empty in ((NONE, "DefaultRecord", 0), (GZIP, "PartialDefaultRecord", -1)):
        shown = (
            f"{kind}(offset=0, timestamp={now_ms}, key={empty} bytes, value=3 bytes)",
            f"{kind}(offset=1, timestamp={now_ms}, key=1 bytes, value={empty} bytes)",
        )
        yield row(
            "LogAppendTime claimed where the broker sets it",
            mixed,
            2,
            {0: claim.format(shown[0]), 1: claim.format(shown[1])},
            codec=codec,
            topic=APPEND_TIME,
            attributes=0x08,
        )


def conversions(now_ms: int) -> Iterator[ProduceCase]:
    """Yields a case for every combination of a topic's compression and a producer's compression."""
    for stored in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
        for codec in (NONE, *CODECS):
            batch = good_batch(compression=codec, now_ms=now_ms)
            yield ProduceCase(f"from {codec.name} to {stored}", batch, E.NONE, topic=stored_as(stored))
    both = stored_as("zstd") | APPEND_TIME
    yield ProduceCase("LogAppendTime and another compression", good_batch(now_ms=now_ms), E.NONE, topic=both)
    levels = stored_as("gzip") | {"compression.gzip.level": "1"}
    yield ProduceCase("a compression level", good_batch(now_ms=now_ms), E.NONE, topic=levels)
    idle = changed(good_batch(now_ms=now_ms), producer_id=9, producer_epoch=0, base_sequence=0)
    yield ProduceCase("an idempotent producer's, converted", idle, E.NONE, topic=stored_as("lz4"))


CHAPTERS = (requests, headers, sizes, decompressed_sizes, records, packings, keys, timestamps, conversions)


def everything(now_ms: int) -> list[ProduceCase]:
    return [row for chapter in CHAPTERS for row in chapter(now_ms)]
