"""The releases of Apache Kafka that a cluster can emulate: their API versions, features and default settings.

`python -m tests.conformance.releases` starts each release, queries these properties, and writes `releases.json`. A
cluster that emulates a release offers only the API versions and features that both the release and this broker support.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from odradek.broker.api.served import OfferedVersions
from odradek.broker.broker import OFFERED
from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.control.problems import text, unknown_field
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.kafka_rules import KafkaRules

APIS: Mapping[str, ApiKey] = {key.kafka_name: key for key in ApiKey}
# Prefixes of settings whose defaults are not emulated, because the defaults are class names, or because this broker
# lacks the parts of Kafka that use the settings.
LEFT_OUT = ("group.consumer.assignors", "metric.", "remote.")


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Apache Kafka that a cluster can emulate.

    name      the value of `emulate` in a request, such as 4.0
    kafka     the full version
    defaults  default values of the settings whose defaults differ between the release and this broker
    """

    name: str
    kafka: str
    offered: OfferedVersions
    defaults: Mapping[str, str]


@cache
def releases() -> Mapping[str, Release]:
    """Returns all releases by name, oldest first."""
    recorded = json.loads(resources.files("odradek.broker.control.clusters").joinpath("releases.json").read_bytes())
    return {name: _release(name, each) for name, each in recorded.items()}


def release_named(value: object) -> Release:
    """Returns the release named by a request's `emulate` field. Raises Problem if the release is unknown."""
    name = text(value, "emulate")
    if name not in releases():
        raise unknown_field("emulate", name, releases())
    return releases()[name]


def rules_of(version: str) -> KafkaRules:
    """Returns the newest rules that apply to a full version such as 4.3.1."""
    major, minor, *_ = map(int, version.split("."))
    return max((each for each in KafkaRules if each <= 100 * major + minor), default=KafkaRules.KAFKA_4_3)


def _release(name: str, recorded: Mapping[str, Any]) -> Release:
    apis = {}
    for api, (lowest, highest) in recorded["apis"].items():
        served = None if api not in APIS else OFFERED.apis.get(APIS[api])
        if served is not None:
            lowest, highest = max(lowest, served.min_version), min(highest, served.max_version)
            apis[APIS[api]] = replace(served, min_version=lowest, max_version=highest)
    known = OFFERED.features
    return Release(
        name,
        recorded["kafka"],
        OfferedVersions(
            apis,
            {each: (least, most) for each, (least, most) in recorded["supported"].items() if each in known},
            {each: level for each, level in recorded["finalized"].items() if each in known},
            rules_of(recorded["kafka"]),
        ),
        {
            each: value
            for each, value in recorded["defaults"].items()
            if each in BROKER_SETTINGS and not each.startswith(LEFT_OUT) and value is not None
        },
    )
