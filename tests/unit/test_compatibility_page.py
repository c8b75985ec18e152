"""docs/compatibility.md, the dispatch table and Kafka's own list of APIs agree."""

import json
import re
from pathlib import Path

from odradek.broker.api.served import SERVED
from tests.support.oracle import ORACLE, needs_oracle

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
AHEAD_OF_KAFKA = {
    22: ("InitProducerId", 0, 6),  # ADR 9
    93: ("TxnShareAcknowledge", 0, 0),  # ADR 16
}
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)(?:–(\d+))? \|", re.MULTILINE)


def rows() -> dict[int, tuple[str, int, int]]:
    """key → (name, lowest, highest version) as the page has it."""
    return {
        int(key): (name, int(lowest), int(highest or lowest))
        for key, name, lowest, highest in ROW.findall(PAGE.read_text())
    }


def test_the_page_has_one_row_for_each_api_that_is_served_with_its_versions() -> None:
    served = {key.value: (handler.min_version, handler.max_version) for key, handler in SERVED.items()}
    assert {key: versions for key, (_, *versions) in rows().items()} == {k: list(v) for k, v in served.items()}


@needs_oracle
def test_what_is_served_is_advertised_as_kafka_does() -> None:
    listed = json.loads((ORACLE / "exchanges" / "api-versions-4.3.1.json").read_text())["apis"]
    of_kafka = {api["key"]: (api["name"], api["min"], api["max"]) for api in listed}
    assert {key: of_kafka[key] for key in rows() if key in of_kafka} | AHEAD_OF_KAFKA == rows()
