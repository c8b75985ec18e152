"""Tests that the Served APIs page of the documentation site, the table of supported APIs and Kafka's own list of APIs
agree."""

import json

from odradek.broker.api.served import SERVED
from tests.support.apis_page import page, served
from tests.support.oracle import ORACLE, needs_oracle

AHEAD_OF_KAFKA = {
    22: ("InitProducerId", 0, 6),  # ADR 9
    95: ("TxnShareAcknowledge", 0, 0),  # ADR 35
}


def test_the_page_has_a_row_with_the_versions_of_each_api() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len(rows) == len(SERVED)
    assert "| 26 | EndTxn | 0–5 |" in rows
    assert "| 95 | TxnShareAcknowledge | 0 |" in rows


@needs_oracle
def test_what_is_served_is_advertised_as_kafka_does() -> None:
    listed = json.loads((ORACLE / "exchanges" / "api-versions-4.4.0.json").read_text())["apis"]
    of_kafka = {api["key"]: (api["name"], api["min"], api["max"]) for api in listed}
    assert {key: of_kafka[key] for key in served() if key in of_kafka} | AHEAD_OF_KAFKA == served()
