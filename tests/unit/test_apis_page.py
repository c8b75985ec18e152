"""docs/apis.md, the dispatch table and Kafka's own list of APIs agree."""

import json
from pathlib import Path

from odradek.broker.api.served import SERVED
from odradek.protocol.api_keys import ApiKey
from tests.support.oracle import ORACLE, needs_oracle

PAGE = Path(__file__).parents[2] / "docs" / "apis.md"
HOW_TO_RENEW = "python -m tests.unit.test_apis_page writes the page anew"
AHEAD_OF_KAFKA = {
    22: ("InitProducerId", 0, 6),  # ADR 9
    95: ("TxnShareAcknowledge", 0, 0),  # ADR 35
}
HEAD = """# Served APIs

The APIs that this broker serves, with their versions. How they differ from Kafka: [compatibility.md](compatibility.md).
Written by `python -m tests.unit.test_apis_page` from `odradek/broker/api/served.py`.

| key | API | versions |
|---|---|---|
"""


def served() -> dict[int, tuple[str, int, int]]:
    """Returns name, lowest and highest version of each API by its key."""
    return {key.value: (name_of(key), each.min_version, each.max_version) for key, each in SERVED.items()}


def name_of(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


def written() -> str:
    rows = [
        f"| {key} | {name} | {lowest}{f'–{highest}' if highest > lowest else ''} |\n"
        for key, (name, lowest, highest) in sorted(served().items())
    ]
    return HEAD + "".join(rows)


def test_the_page_lists_what_is_served() -> None:
    assert PAGE.read_text() == written(), HOW_TO_RENEW


@needs_oracle
def test_what_is_served_is_advertised_as_kafka_does() -> None:
    listed = json.loads((ORACLE / "exchanges" / "api-versions-4.4.0.json").read_text())["apis"]
    of_kafka = {api["key"]: (api["name"], api["min"], api["max"]) for api in listed}
    assert {key: of_kafka[key] for key in served() if key in of_kafka} | AHEAD_OF_KAFKA == served()


if __name__ == "__main__":
    PAGE.write_text(written())
