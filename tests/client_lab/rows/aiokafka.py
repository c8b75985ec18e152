"""Bugs in old aiokafka releases."""

from __future__ import annotations

from collections.abc import Mapping

from tests.client_lab import states
from tests.client_lab.row import Client, Row, ScenarioConviction, Sight

AIOKAFKA = Client("aiokafka", "aiokafka_.py", driver="aiokafka_.py")
AIOKAFKA_0_4 = Client("aiokafka", "aiokafka_0_4.py")
EARLY_AIOKAFKA = Client("aiokafka", "aiokafka_.py", needs=("kafka-python==2.0.2",))


ROWS = (
    Row(
        "aio-libs/aiokafka#1134", AIOKAFKA, "0.12.0", "0.13.0",
        [Sight(
            "two_transactions", states.second_held("Produce"), "hangs", "committed", states.coordinator_ends, nodes=3,
        )],
    ),
    Row(
        "aio-libs/aiokafka#1145", AIOKAFKA, "0.12.0", "0.13.0",
        [Sight(
            "two_transactions", states.second_held("AddPartitionsToTxn"), "hangs", "committed",
            states.coordinator_ends, nodes=3,
        )],
    ),
    Row(
        "aio-libs/aiokafka#1151", AIOKAFKA, "0.13.0", "0.14.0",
        [Sight(
            "two_transactions_with_offsets", states.second_held("AddOffsetsToTxn"),
            "raised KafkaError('Unexpected error during batch delivery')", "committed", states.coordinator_ends,
            nodes=3,
        )],
    ),
    Row(
        "aio-libs/aiokafka#781", EARLY_AIOKAFKA, "0.7.2", "0.8.0",
        [Sight("read_one", states.marker_without_records, "raised KeyError", "read committed")], python="3.8",
    ),
    Row(
        "aio-libs/aiokafka#267", AIOKAFKA_0_4, "0.3.1", "0.4.0",
        [Sight(
            "know_new_topics", states.metadata_is_requested, "raised UnknownTopicOrPartitionError", "knows",
            states.node_begins_without_brokers,
        )], python="3.6",
    ),
    Row(
        "aio-libs/aiokafka#1115", AIOKAFKA, "0.12.0", "0.13.0",
        [
            Sight("send", states.storage_error, "raised KafkaStorageError", "sent"),
            ScenarioConviction("PRD.7", also=("VER.1",)),
        ],
    ),
    Row(
        "aio-libs/aiokafka#510", AIOKAFKA, "0.14.0", None,
        [Sight("send_two", states.second_batch_unknown, "raised UnknownProducerId", None)],
    ),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "robinhood/aiokafka#26": "No release of the fork on PyPI, up to 1.1.6, knows static members.",
}
