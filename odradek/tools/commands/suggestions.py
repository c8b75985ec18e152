"""Finds the topic, group or setting that a user probably meant after the cluster has rejected an unknown name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.client.common.errors import ClientError
from odradek.protocol.errors import ErrorCode
from odradek.tools.commands.configs import resource
from odradek.tools.commands.options import admin
from odradek.tools.commands.similar_names import did_you_mean

if TYPE_CHECKING:
    from odradek.client.admin import Admin

TIMEOUT_MS = 2_000
UNKNOWN_SETTING = re.compile(r"[Uu]nknown [a-z ]*config\w*(?: name)?: ([\w.-]+)")


async def suggestion(options: argparse.Namespace, error: ClientError) -> str:
    """Returns a hint with the name of something in the cluster that the user probably meant, or an empty string if no
    name is similar."""
    try:
        async with admin(options, TIMEOUT_MS) as connection:
            match error.code:
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return _first(_topics(options), await connection.list_topics(include_internal=True))
                case ErrorCode.GROUP_ID_NOT_FOUND:
                    given = [*getattr(options, "names", ()), *(getattr(options, "more_names", None) or ())]
                    return _first(given, [each.group_id for each in await connection.list_groups()])
                case ErrorCode.INVALID_CONFIG:
                    unknown = UNKNOWN_SETTING.search(str(error))
                    return "" if unknown is None else _first([unknown[1]], await _settings(connection, options))
    except (ClientError, OSError):
        pass  # the original error is reported anyway
    return ""


def _first(given: Iterable[str], known: Iterable[str]) -> str:
    known = [*known]
    return next((found for name in given if name not in known and (found := did_you_mean(name, known))), "")


def _topics(options: argparse.Namespace) -> list[str]:
    names = [*getattr(options, "names", ()), *(getattr(options, "more_names", None) or ())]
    topic = getattr(options, "topic", None) or []
    names += [topic] if isinstance(topic, str) else topic
    return [name.partition(":")[0] for name in names]


async def _settings(connection: Admin, options: argparse.Namespace) -> list[str]:
    """Returns the names of the resource's settings. For a topic that does not exist yet, returns the names of another
    topic's settings."""
    from odradek.client.administration.configs import ConfigResource, ConfigType

    if "entity_type" in options:
        return [each.name for each in await connection.describe_configs(resource(options))]
    for topic in (await connection.list_topics(include_internal=True))[:1]:
        return [each.name for each in await connection.describe_configs(ConfigResource(ConfigType.TOPIC, topic))]
    return []
