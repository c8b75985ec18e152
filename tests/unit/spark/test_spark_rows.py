"""Tests that a Spark task writes each row to the right partition and computes a digest that does not depend on the
order of the rows. The tests also cover the source's options."""

import pickle
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client import TopicPartition
from odradek.protocol.key_partition import partition_for_key
from odradek.spark.offsets import DataLost, OffsetRange, Threshold, from_json, limit_offsets, limited, ranges, to_json
from odradek.spark.options import EARLIEST, LATEST, OptionError, SinkOptions, SourceOptions, require_known
from odradek.spark.task import groups, partitions_for_keys

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def grouped(
    columns: Mapping[str, Sequence[object]], topic: str | None = "t"
) -> list[tuple[str, int, list[bytes], list[bytes]]]:
    batch = pa.RecordBatch.from_pydict(dict(columns))
    return [
        (each.topic, each.partition, [] if each.keys is None else each.keys.to_pylist(), each.values.to_pylist())
        for each in groups(batch, topic, lambda name: 3, random.Random(1))
    ]


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(1, 50))
def test_keys_go_where_every_kafka_client_sends_them(keys: list[bytes], count: int) -> None:
    found = partitions_for_keys(pa.array(keys, pa.binary()), count)
    assert found.tolist() == [partition_for_key(key, count) for key in keys]


def test_a_slice_of_keys_is_hashed_as_the_keys_are() -> None:
    keys = pa.array([b"%d" % number for number in range(100)])
    assert np.array_equal(partitions_for_keys(keys[7:], 10), partitions_for_keys(keys, 10)[7:])


def test_rows_of_a_partition_keep_their_order() -> None:
    keys = [b"a", b"b", b"c", b"a", b"b", b"c"] * 5
    values = [b"%d" % number for number in range(30)]
    for _, partition, own_keys, own_values in grouped({"key": keys, "value": values}):
        assert own_values == sorted(own_values, key=int)
        assert {partition_for_key(key, 3) for key in own_keys} == {partition}


def test_the_columns_topic_and_partition_decide_where_they_are_set() -> None:
    found = grouped({"value": ["x", "y", "z"], "topic": ["a", "b", "a"], "partition": [2, 1, 0]}, None)
    assert found == [("a", 0, [], [b"z"]), ("a", 2, [], [b"x"]), ("b", 1, [], [b"y"])]
    assert {topic for topic, *_ in grouped({"value": ["x"], "topic": ["column"]}, "option")} == {"option"}


@pytest.mark.parametrize("columns", [{"key": ["x"]}, {"value": [1]}], ids=["no value", "a number"])
def test_columns_that_cannot_be_written_are_refused(columns: dict[str, list[object]]) -> None:
    with pytest.raises(OptionError, match="value"):
        grouped(columns)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_keys_and_values_may_be_of_the_large_types_of_arrow(kind: str, large: bool) -> None:
    """Checks that columns can have Arrow's large types, which Spark uses if
    `spark.sql.execution.arrow.useLargeVarTypes` is set."""
    of_kind = {"string": (pa.string(), pa.large_string()), "binary": (pa.binary(), pa.large_binary())}[kind]
    column = pa.array([b"a", b"b"]).cast(of_kind[large])
    header = pa.struct(
        [("key", pa.large_string() if large else pa.string()), ("value", pa.large_binary() if large else pa.binary())]
    )
    headers = pa.array([[{"key": "h", "value": b"1"}], None], pa.list_(header))
    topics = pa.array(["t", "t"], pa.large_string() if large else pa.string())
    batch = pa.RecordBatch.from_arrays([column, column, headers, topics], ["key", "value", "headers", "topic"])
    (found,) = groups(batch, None, lambda name: 1, random.Random(1))
    assert found.keys is not None
    assert found.headers is not None
    assert (found.topic, found.keys.to_pylist(), found.values.to_pylist()) == ("t", [b"a", b"b"], [b"a", b"b"])
    assert found.headers.to_pylist() == [[{"key": "h", "value": b"1"}], None]


def digest_of_columns(columns: Mapping[str, Sequence[object]], seed: int = 1) -> int:
    batch = pa.RecordBatch.from_pydict(dict(columns), schema=pa.schema([(name, TYPES[name]) for name in columns]))
    topic = None if "topic" in columns else "t"
    return sum(each.digest() for each in groups(batch, topic, lambda name: 8, random.Random(seed)))


TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def headers(*pairs: tuple[str, bytes | None]) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in pairs]


def test_the_digest_covers_every_column() -> None:
    rows: list[dict[str, list[object]]] = [
        {"value": [b"v"]},
        {"value": [b"w"]},
        {"value": [b"v"], "key": [b"k"]},
        {"value": [b"v"], "topic": ["other"]},
        {"value": [b"v"], "partition": [0]},
        {"value": [b"v"], "partition": [7]},
        {"value": [b"v"], "headers": [headers(("h", b"1"))]},
        {"value": [b"v"], "headers": [headers(("h", b"2"))]},
        {"value": [b"v"], "headers": [headers(("i", b"1"))]},
        {"value": [b"v"], "headers": [headers(("h", None))]},
        {"value": [b"v"], "headers": [headers(("h", b""))]},
        {"value": [b"v"], "headers": [headers(("h", b"1"), ("h", b"1"))]},
        {"value": [b"v"], "headers": [headers(("h", b"1"), ("i", b"2"))]},
        {"value": [b"v"], "headers": [headers(("i", b"2"), ("h", b"1"))]},
        {"value": [b"v"], "topic": ["a"], "key": [b"a"]},
        {"value": [b"v"], "topic": ["b"], "key": [b"b"]},
        {"value": [b"v"], "key": [b"h"], "headers": [headers()]},
        {"value": [b"h"], "key": [b"v"], "headers": [headers()]},
    ]
    digests = [digest_of_columns(each) for each in rows]
    assert [digests.index(each) for each in digests] == list(range(len(rows)))


def test_the_digest_leaves_out_what_does_not_change_a_record() -> None:
    """Checks that the digest excludes the partition chosen at random for a row without a key, and the difference
    between null and empty headers."""
    plain = digest_of_columns({"value": [b"v"]}, seed=1)
    assert {digest_of_columns({"value": [b"v"]}, seed) for seed in range(2, 20)} == {plain}
    assert digest_of_columns({"value": [b"v"], "partition": [None]}) == plain
    assert digest_of_columns({"value": [b"v"], "headers": [None]}) == plain
    assert digest_of_columns({"value": [b"v"], "headers": [headers()]}) == plain
    assert digest_of_columns({"value": [b"v"], "topic": ["t"]}) == plain


FIRST_DIGEST = 8550815191753442549  # computed by the release that did not store a version


def test_the_digest_of_an_earlier_release_is_computed_as_that_release_did() -> None:
    """Checks that `first_digest` returns the digest of the release whose ledgers have no version. If a write is
    repeated, its rows are compared with the digest in the ledger."""
    batch = pa.RecordBatch.from_pydict({"key": [b"k", None], "value": [b"v", None], "partition": [0, 0]})
    (found,) = groups(batch, "t", lambda name: 1, random.Random(1))
    assert found.first_digest() == FIRST_DIGEST


def digest(rows: list[tuple[bytes | None, bytes | None]]) -> int:
    keys = pa.array([key for key, _ in rows], pa.binary())
    batch = pa.RecordBatch.from_arrays([keys, pa.array([value for _, value in rows], pa.binary())], ["key", "value"])
    found = groups(batch, "t", lambda name: 1, random.Random(1))
    return sum(each.digest() for each in found)


ROWS = st.lists(st.tuples(st.none() | st.binary(max_size=4), st.none() | st.binary(max_size=4)), min_size=1)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order(
    rows: list[tuple[bytes | None, bytes | None]], rng: random.Random
) -> None:
    assert digest(rows) == digest(rng.sample(rows, len(rows)))


def test_the_digest_tells_rows_apart() -> None:
    different: list[list[tuple[bytes | None, bytes | None]]] = [
        [(b"a", b"b"), (b"c", b"d")],
        [(b"a", b"d"), (b"c", b"b")],
        [(b"a", b"b"), (b"a", b"b")],
        [(None, b"b"), (b"c", b"d")],
        [(b"", b"b"), (b"c", b"d")],
        [(b"a", None), (b"c", b"d")],
        [(b"a", b""), (b"c", b"d")],
    ]
    assert len({digest(rows) for rows in different}) == len(different)


# Options and offsets


def test_defaults_are_those_of_sparks_kafka_source_but_for_the_isolation() -> None:
    batch = SourceOptions.read(SERVERS | {"subscribe": "a, b"}, is_stream=False)
    stream = SourceOptions.read(SERVERS | {"subscribePattern": "a.*"}, is_stream=True)
    assert (batch.topics, batch.starting.everywhere, batch.ending.everywhere) == (("a", "b"), EARLIEST, LATEST)
    assert (stream.pattern, stream.starting.everywhere) == ("a.*", LATEST)
    assert batch.isolation_level == "read_committed"
    assert batch.fail_on_data_loss


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "subscribe"),
        ({"subscribe": "a", "assign": "{}"}, "one of the options"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "latest"),
        ({"subscribe": "a", "startingOffsets": "{"}, "startingOffsets must have the form"),
        ({"subscribe": "a", "endingOffsets": "7"}, "endingOffsets must have the form"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": "7"}, "startingOffsetsByTimestamp must have the form"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "startingTimestamp must be a whole number of at least 0"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "earliest"),
        ({"assign": "[1]"}, "assign must have the form"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        ({"subscribe": "a", "kafka.group.id": "g"}, r"kafka\.group\.id"),
        ({"subscribe": "a", "kafka.sasl.kerberos.service.name": "x"}, r"kafka\.sasl\.kerberos\.service\.name is not"),
        ({"subscribe": "a", "kafka.security.protocol": "TLS"}, r"kafka\.security\.protocol must be one of"),
        ({"subscribe": "a", "kafka.security.protocol": "SASL_SSL"}, r"sasl\.mechanism is missing"),
        ({"subscribe": "a", "kafka.isolation.level": "serializable"}, "read_uncommitted"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as 15m"),
        (
            {"subscribe": "a", "maxRecordsPerPartition": "0"},
            "maxRecordsPerPartition must be a whole number of at least 1",
        ),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"minOffsetsPerTrigger \(9\)"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SourceOptions.read(SERVERS | options, is_stream=False)
    with pytest.raises(OptionError, match="delivery"):
        SinkOptions.read(SERVERS | {"delivery": "atMostOnce"}, is_stream=False)


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_a_timestamp_may_be_the_beginning_of_time(which: str) -> None:
    """Checks that the timestamp 0 is accepted, as it is by Spark's Kafka source."""
    options = SourceOptions.read(SERVERS | {"subscribe": "a", f"{which}Timestamp": "0"}, is_stream=False)
    bound = options.starting if which == "starting" else options.ending
    assert bound.timestamp_ms == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("groupIdPrefix", "groupIdPrefix is not supported here"),
        ("valueFormat", r"decode_avro\(frame, 'value', SUBJECT\)"),
        ("KEYFORMAT", r"keyFormat is not supported here: .*decode_avro\(frame, 'key', SUBJECT\)"),
        ("fetchoffset.numretries", "fetchOffset.numRetries is not supported here"),
        ("fetchOffset.retryIntervalMs", "fetchOffset.retryIntervalMs is not supported here"),
        ("startingOffset", "startingOffset is unknown; did you mean startingOffsets"),
        ("idempotencykeys", "did you mean idempotencyKey"),
        ("colour", "colour is unknown$"),
    ],
)
def test_an_unknown_option_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        require_known(SERVERS | {"subscribe": "a", "checkpointLocation": "c", name: "3"})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingoffsetsbytimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match="a stream, which has no end"):
        SourceOptions.read(SERVERS | {"subscribe": "a", name: "latest"}, is_stream=True)


@pytest.mark.parametrize(
    ("options", "is_stream", "message"),
    [
        ({"idempotencyKey": "k"}, True, "whose batches are identified by numbers"),
        ({"idempotencyKey": "k", "delivery": "atLeastOnce"}, False, "needs delivery=exactlyOnce"),
    ],
)
def test_a_key_that_would_not_be_heeded_is_refused(options: dict[str, str], is_stream: bool, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SinkOptions.read(SERVERS | options, is_stream=is_stream)


def test_a_batch_warns_about_options_that_apply_only_to_streams(caplog: pytest.LogCaptureFixture) -> None:
    SourceOptions.read(SERVERS | {"subscribe": "a", "maxTriggerDelay": "1s"}, is_stream=False)
    assert "maxTriggerDelay has no effect on a batch" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("15m", 900_000), ("2 min", 120_000), ("30S", 30_000), ("7d", 604_800_000), ("250", 250)]
)
def test_times_are_written_as_for_spark(text: str, expected_ms: int) -> None:
    options = SourceOptions.read(SERVERS | {"subscribe": "a", "maxTriggerDelay": text}, is_stream=True)
    assert options.max_trigger_delay_ms == expected_ms


A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_offsets_are_written_as_sparks_kafka_source_writes_them() -> None:
    assert to_json({B: 0, A: 200}) == {"t": {"0": 200, "1": 0}}
    assert from_json({"t": {"0": 200, "1": 0}}) == {A: 200, B: 0}


def test_a_limit_is_shared_by_the_size_of_the_backlogs() -> None:
    assert limited({A: 0, B: 0}, {A: 300, B: 100}, 40) == {A: 30, B: 10}
    assert limited({A: 0, B: 0}, {A: 30, B: 10}, 40) == {A: 30, B: 10}
    assert limited({A: 5, B: 0}, {A: 6, B: 1000}, 10)[A] == 6, "no partition starves"


def test_a_batch_waits_for_enough_offsets_or_long_enough() -> None:
    threshold, start = Threshold(min_offsets=10, max_delay_s=60), {A: 0, B: 5}
    assert not threshold.holds_back(start, {A: 0, B: 6}, 0), "how long the first one has waited, nobody knows"
    assert threshold.holds_back(start, {A: 4, B: 10}, 59)
    assert not threshold.holds_back(start, {A: 5, B: 10}, 59)
    assert threshold.holds_back(start, {A: 4, B: 10}, 118)
    assert not threshold.holds_back(start, {A: 4, B: 10}, 119)


def test_a_task_reads_no_more_records_than_the_option_says() -> None:
    assert limit_offsets([OffsetRange("t", 0, 5, 15), OffsetRange("t", 1, 0, 3)], 4) == [
        OffsetRange("t", 0, 5, 8),
        OffsetRange("t", 0, 8, 11),
        OffsetRange("t", 0, 11, 15),
        OffsetRange("t", 1, 0, 3),
    ]


def test_options_of_security_reach_every_client_and_travel_to_workers_unseen() -> None:
    options = SERVERS | {
        "subscribe": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "x.PlainLoginModule required username=alice password=s3cret;",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
    }
    source, sink = SourceOptions.read(options, is_stream=True), SinkOptions.read(options, is_stream=True)
    assert source.brokers == sink.brokers
    assert pickle.loads(pickle.dumps(source.brokers)).security["sasl_password"] == "s3cret"
    assert "s3cret" not in repr(source) + repr(sink)


def test_ranges_are_split_for_more_tasks_and_lost_records_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    options = SourceOptions.read(SERVERS | {"subscribe": "t", "minPartitions": "4"}, is_stream=False)
    found = ranges({A: 0, B: 0}, {A: 30, B: 10}, {A: 0, B: 0}, options)
    assert found == [
        OffsetRange("t", 0, 0, 10),
        OffsetRange("t", 0, 10, 20),
        OffsetRange("t", 0, 20, 30),
        OffsetRange("t", 1, 0, 10),
    ]
    with pytest.raises(DataLost, match="0 to 5 of t-0"):
        ranges({A: 0}, {A: 30}, {A: 5}, options)
    lenient = SourceOptions.read(SERVERS | {"subscribe": "t", "failOnDataLoss": "false"}, is_stream=False)
    assert ranges({A: 0}, {A: 30}, {A: 5}, lenient) == [OffsetRange("t", 0, 5, 30)]
    assert ranges({A: 9}, {A: 7}, {A: 5}, lenient) == []
    assert [record.getMessage() for record in caplog.records] == [
        "records were lost: the offsets 0 to 5 of t-0 are no longer in the log",
        "records were lost: t-0 ends at 7, before the offset 9",
    ]


def test_a_batch_may_begin_at_a_timestamp() -> None:
    options = SourceOptions.read(SERVERS | {"subscribe": "t", "startingTimestamp": "1000"}, is_stream=False)
    assert options.starting.timestamp_ms == 1_000
    by_partition = {"subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": 7}}'}
    assert SourceOptions.read(SERVERS | by_partition, is_stream=False).starting.timestamps_ms == {A: 7}
