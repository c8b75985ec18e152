"""Writes the documentation site's Served APIs page (`make docs`) from the table of served APIs."""

from __future__ import annotations

from odradek.broker.api.served import SERVED

HEAD = """# Served APIs

This table lists the APIs that the broker serves, with their versions. [compatibility.md](compatibility.md) describes
how they differ from Kafka. `make docs` writes this page from `odradek/broker/api/served.py`.

| key | API | versions |
|---|---|---|
"""


def page() -> str:
    """Returns the page: a table with a row for each API and its versions."""
    rows = [
        f"| {key} | {name} | {lowest}{f'–{highest}' if highest > lowest else ''} |\n"
        for key, (name, lowest, highest) in sorted(served().items())
    ]
    return HEAD + "".join(rows)


def served() -> dict[int, tuple[str, int, int]]:
    """Returns (name, lowest version, highest version) of each API, by API key."""
    return {key.value: (key.kafka_name, each.min_version, each.max_version) for key, each in SERVED.items()}
