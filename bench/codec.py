"""Measures the codec and compares it with parsers compiled by the construct library on the same machine: `python -m
bench.codec`.

Each figure is the best of several rounds, in microseconds. The codec must be at least five times as fast as construct's
parsers.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from timeit import repeat
from typing import Any

import construct as c

import odradek.protocol.codec as codec
from odradek.protocol.codec import decode, encode, encode_chunks
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.support.requests import produce_request

GATE = 5.0
CALLS, ROUNDS = 5_000, 9
BATCH = bytes(1024)

PRODUCE = produce_request("my-topic", BATCH, partition=3)
PRODUCED = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="my-topic", partition_responses=[PartitionProduceResponse(index=3, base_offset=88, error_message=None)]
        )
    ]
)
FETCH = FetchRequest(
    topics=[
        FetchTopic(
            topic="my-topic",
            partitions=[FetchPartition(partition=i, fetch_offset=7, partition_max_bytes=1 << 20) for i in range(10)],
        )
    ]
)
FETCHED = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="my-topic",
            partitions=[
                PartitionData(
                    partition_index=i,
                    high_watermark=1000,
                    last_stable_offset=1000,
                    log_start_offset=0,
                    aborted_transactions=None,
                    records=BATCH,
                )
                for i in range(10)
            ],
        )
    ]
)

Text = c.PascalString(c.Int16sb, "utf-8")
NullableText = c.FocusedSeq(
    "text", "length" / c.Rebuild(c.Int16sb, -1), "text" / c.If(c.this.length >= 0, c.Bytes(c.this.length))
)
Blob = c.Prefixed(c.Int32sb, c.GreedyBytes)
CONSTRUCT_PRODUCE_V7 = c.Struct(
    "transactional_id" / NullableText,
    "acks" / c.Int16sb,
    "timeout_ms" / c.Int32sb,
    "topic_data"
    / c.PrefixedArray(
        c.Int32sb,
        c.Struct(
            "name" / Text,
            "partition_data" / c.PrefixedArray(c.Int32sb, c.Struct("index" / c.Int32sb, "records" / Blob)),
        ),
    ),
).compile()
CONSTRUCT_FETCH_V11 = c.Struct(
    "throttle_time_ms" / c.Int32sb,
    "error_code" / c.Int16sb,
    "session_id" / c.Int32sb,
    "responses"
    / c.PrefixedArray(
        c.Int32sb,
        c.Struct(
            "topic" / Text,
            "partitions"
            / c.PrefixedArray(
                c.Int32sb,
                c.Struct(
                    "partition_index" / c.Int32sb,
                    "error_code" / c.Int16sb,
                    "high_watermark" / c.Int64sb,
                    "last_stable_offset" / c.Int64sb,
                    "log_start_offset" / c.Int64sb,
                    "aborted_transactions" / c.Const(-1, c.Int32sb),
                    "preferred_read_replica" / c.Int32sb,
                    "records" / Blob,
                ),
            ),
        ),
    ),
).compile()


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    microseconds: float
    construct_microseconds: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.construct_microseconds is None else self.construct_microseconds / self.microseconds


def microseconds(call: Callable[[], Any]) -> float:
    return min(repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def build_milliseconds() -> list[float]:
    """Returns how long it takes to generate the readers and writers of some messages in their newest versions."""
    found: list[float] = []
    for message_type in (ProduceRequest, ProduceResponse, FetchRequest, FetchResponse, MetadataResponse):
        for build in (codec.compile_reader, codec.compile_writer):
            start = perf_counter()
            build(message_type, message_type.MAX_VERSION)
            found.append((perf_counter() - start) * 1e3)
    return found


def rows() -> list[Row]:
    produce_v7, produce_v9 = encode(PRODUCE, 7), encode(PRODUCE, 9)
    fetch_v12, fetched_v11 = encode(FETCH, 12), encode(FETCHED, 11)
    tree = CONSTRUCT_FETCH_V11.parse(fetched_v11)
    assert CONSTRUCT_FETCH_V11.build(tree) == fetched_v11
    assert CONSTRUCT_PRODUCE_V7.parse(produce_v7).topic_data[0].partition_data[0].records == BATCH
    return [
        Row(
            "decode Produce v7, one partition",
            microseconds(lambda: decode(ProduceRequest, 7, produce_v7)),
            microseconds(lambda: CONSTRUCT_PRODUCE_V7.parse(produce_v7)),
        ),
        Row("decode Produce v9, one partition", microseconds(lambda: decode(ProduceRequest, 9, produce_v9))),
        Row("encode Produce response v9", microseconds(lambda: encode_chunks(PRODUCED, 9))),
        Row("decode Fetch v12, ten partitions", microseconds(lambda: decode(FetchRequest, 12, fetch_v12))),
        Row(
            "encode Fetch response v11, ten partitions",
            microseconds(lambda: encode_chunks(FETCHED, 11)),
            microseconds(lambda: CONSTRUCT_FETCH_V11.build(tree)),
        ),
        Row("encode Fetch response v12, ten partitions", microseconds(lambda: encode_chunks(FETCHED, 12))),
    ]


def main() -> int:
    builds = build_milliseconds()
    print(f"building a codec takes {min(builds):.1f} to {max(builds):.1f} ms")
    measured = rows()
    for row in measured:
        against = "" if row.ratio is None else f"  {row.ratio:4.1f} x construct compiled (gate {GATE})"
        print(f"{row.name:42} {row.microseconds:6.2f} µs{against}")
    return 0 if all(row.ratio is None or row.ratio >= GATE for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
