"""Tests that every client reads the records of every other client unchanged."""

import itertools
import time

import pytest

from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Headers, Message, RequestRefused, Speaker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = int(time.time() * 1000)


@pytest.mark.parametrize(("codec", "writer"), list(itertools.product(CODECS, SPEAKERS)))
def test_every_codec_of_every_writer_is_read_by_every_reader(
    bootstrap: str, topic: str, codec: str, writer: str
) -> None:
    messages = [
        Message(b"value %d " % n * 20, key=b"k%d" % (n % 5), timestamp_ms=NOW_MS + n, headers=(("n", b"%d" % n),))
        for n in range(200)
    ]
    offsets = SPEAKERS[writer].produce(bootstrap, topic, messages, compression=codec)
    assert offsets == list(range(200))
    for reader in SPEAKERS.values():
        received = reader.read(bootstrap, topic, 200)
        assert [(r.offset, r.key, r.value, r.headers, r.timestamp_ms) for r in received] == [
            (n, m.key, m.value, m.headers, m.timestamp_ms) for n, m in enumerate(messages)
        ], reader.name


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_topic_with_its_own_codec_returns_records_that_were_sent_with_another_codec(
    bootstrap: str, codec: str, speaker: Speaker
) -> None:
    topic = create_topic(bootstrap, "recompressed", config={"compression.type": codec})
    messages = [Message(b"again and again %d " % n * 10) for n in range(50)]
    speaker.produce(bootstrap, topic, messages, compression="gzip" if codec != "gzip" else "lz4")
    for reader in SPEAKERS.values():
        assert [r.value for r in reader.read(bootstrap, topic, 50)] == [m.value for m in messages], reader.name


def test_null_and_empty_are_different_for_keys_and_values(bootstrap: str, topic: str, speaker: Speaker) -> None:
    pairs = [(None, b"v"), (b"", b"v"), (b"k", None), (b"k", b""), (b"", b""), (b"\x00", b"\x00")]
    speaker.produce(bootstrap, topic, [Message(value, key=key) for key, value in pairs])
    for reader in SPEAKERS.values():
        assert [(r.key, r.value) for r in reader.read(bootstrap, topic, len(pairs))] == pairs, reader.name


def test_headers_keep_order_repetition_nulls_and_unicode(bootstrap: str, topic: str, speaker: Speaker) -> None:
    headers: Headers = (("a", b"1"), ("a", b"2"), ("", b"no name"), ("ключ", b"\x00\xff"), ("empty", b""), ("a", b"3"))
    if speaker.name != "kafka-python":  # The producer of kafka-python does not accept null.
        headers += (("null", None),)
    speaker.produce(bootstrap, topic, [Message(b"v", headers=headers), Message(b"bare")])
    for reader in SPEAKERS.values():
        first, second = reader.read(bootstrap, topic, 2)
        assert (first.headers, second.headers) == (headers, ()), reader.name


def test_a_message_of_900_kilobytes_travels(bootstrap: str, topic: str, speaker: Speaker) -> None:
    value = bytes(range(256)) * 3_515  # 899,840 bytes
    speaker.produce(bootstrap, topic, [Message(b"small"), Message(value), Message(b"small")])
    for reader in SPEAKERS.values():
        assert [r.value for r in reader.read(bootstrap, topic, 3)] == [b"small", value, b"small"], reader.name


def test_megabytes_in_one_answer_arrive_as_they_were_sent(bootstrap: str, topic: str) -> None:
    values = [bytes([n]) * 100_000 for n in range(30)]
    SPEAKERS["confluent-kafka"].produce(bootstrap, topic, [Message(value) for value in values])
    for reader in SPEAKERS.values():
        assert [r.value for r in reader.read(bootstrap, topic, len(values))] == values, reader.name


def test_a_message_above_message_max_bytes_is_refused_and_the_next_one_is_accepted(
    bootstrap: str, topic: str, speaker: Speaker
) -> None:
    with pytest.raises(RequestRefused) as refusal:
        speaker.produce(bootstrap, topic, [Message(bytes(1_100_000))])
    assert refusal.value.code == 10  # MESSAGE_TOO_LARGE
    assert speaker.produce(bootstrap, topic, [Message(b"fits")]) == [0]


def test_a_topic_may_allow_larger_messages_than_the_broker(bootstrap: str, speaker: Speaker) -> None:
    topic = create_topic(bootstrap, "large", config={"max.message.bytes": 3_000_000})
    assert speaker.produce(bootstrap, topic, [Message(bytes(2_000_000))]) == [0]
    assert speaker.read(bootstrap, topic, 1)[0].value == bytes(2_000_000)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_whatever_the_acks(bootstrap: str, topic: str, speaker: Speaker, acks: int | str) -> None:
    speaker.produce(bootstrap, topic, [Message(b"%d" % n) for n in range(100)], acks=acks, idempotent=False)
    assert [r.value for r in speaker.read(bootstrap, topic, 100)] == [b"%d" % n for n in range(100)]


def test_reading_starts_at_any_offset_also_inside_a_batch(bootstrap: str, topic: str, speaker: Speaker) -> None:
    speaker.produce(bootstrap, topic, [Message(b"%d" % n) for n in range(100)], compression="lz4", linger_ms=50)
    for start in (0, 1, 50, 99):
        assert speaker.read(bootstrap, topic, 100 - start, start=start)[0].value == b"%d" % start


def test_an_offset_is_found_by_time(bootstrap: str, topic: str, speaker: Speaker) -> None:
    base_ms = NOW_MS - 1_000_000
    for n in range(0, 30, 10):  # The timestamps of the three batches are ten seconds apart.
        speaker.produce(
            bootstrap, topic, [Message(b"%d" % i, timestamp_ms=base_ms + i * 10_000) for i in range(n, n + 10)]
        )
    assert speaker.offset_at(bootstrap, topic, base_ms - 5) == 0
    assert speaker.offset_at(bootstrap, topic, base_ms) == 0
    assert speaker.offset_at(bootstrap, topic, base_ms + 1) == 1
    assert speaker.offset_at(bootstrap, topic, base_ms + 155_000) == 16
    assert speaker.offset_at(bootstrap, topic, base_ms + 290_000) == 29
    assert speaker.offset_at(bootstrap, topic, base_ms + 290_001) is None


def test_the_bounds_of_a_partition_are_known(bootstrap: str, topic: str, speaker: Speaker) -> None:
    assert speaker.bounds(bootstrap, topic) == (0, 0)
    speaker.produce(bootstrap, topic, [Message(b"v")] * 7)
    assert speaker.bounds(bootstrap, topic) == (0, 7)


def test_a_topic_with_log_append_time_stamps_records_itself(bootstrap: str, speaker: Speaker) -> None:
    topic = create_topic(bootstrap, "append-time", config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000) - 1  # The broker uses this machine's clock.
    speaker.produce(bootstrap, topic, [Message(b"v", timestamp_ms=1_000_000_000_000 + n) for n in range(10)])
    times = {r.timestamp_ms for r in speaker.read(bootstrap, topic, 10)}
    assert all(before_ms <= at <= int(time.time() * 1000) + 1 for at in times)


def test_a_timestamp_too_far_ahead_is_refused(bootstrap: str, topic: str, speaker: Speaker) -> None:
    with pytest.raises(RequestRefused) as refusal:
        speaker.produce(bootstrap, topic, [Message(b"v", timestamp_ms=NOW_MS + 10 * 86_400_000)])
    assert refusal.value.code == 32  # INVALID_TIMESTAMP


def test_partitions_are_separate_logs(bootstrap: str, speaker: Speaker) -> None:
    topic = create_topic(bootstrap, "partitions", partitions=3)
    messages = [Message(b"%d" % n, partition=n % 3) for n in range(30)]
    assert speaker.produce(bootstrap, topic, messages) == [n // 3 for n in range(30)]
    for partition in range(3):
        values = [r.value for r in speaker.read(bootstrap, topic, 10, partition=partition)]
        assert values == [b"%d" % n for n in range(partition, 30, 3)]


def test_producing_to_an_unknown_topic_creates_it(bootstrap: str, speaker: Speaker) -> None:
    topic = f"created-by-{speaker.name}-{time.time_ns()}"
    assert speaker.produce(bootstrap, topic, [Message(b"first")]) == [0]
    assert speaker.read(bootstrap, topic, 1)[0].value == b"first"
