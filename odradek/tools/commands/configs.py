"""Implements `odradek configs`, which describes and alters settings, like kafka-configs."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from odradek.tools.commands.options import CommandActions, complete_topics
from odradek.tools.commands.output import headings, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.configs import ConfigChange, ConfigResource

KINDS = {  # maps --entity-type to the name of a ConfigType, which is also the name of an option
    "topics": "TOPIC",
    "brokers": "BROKER",
    "groups": "GROUP",
    "broker-loggers": "BROKER_LOGGER",
    "client-metrics": "CLIENT_METRICS",
}
SETTING = re.compile(r"\s*([^=,\s]+)\s*=\s*(?:\[([^\]]*)\]|([^,]*))\s*(?:,|$)")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add(
        "describe",
        "show the settings of a topic, broker or group, and where each value comes from",
        describe,
        resource,
        json=True,
    ) as describing:
        _add_resource(describing)
        describing.add_argument("--all", action="store_true", help="also show settings that have their default values")
    with actions.add("alter", "change the given settings, and leave the others unchanged", alter, _check) as altering:
        _add_resource(altering)
        altering.add_argument(
            "--add-config",
            metavar="NAME=VALUE,…",
            default="",
            help="set these settings; put brackets around a value that contains commas: a=[b,c]",
        )
        altering.add_argument(
            "--delete-config", metavar="NAME,…", default="", help="reset these settings to their defaults"
        )


def _add_resource(parser: argparse.ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group(required=True)
    complete_topics(one.add_argument("-t", "--topic", metavar="TOPIC", help="the settings of this topic"))
    one.add_argument("--broker", metavar="ID", help="the settings of this broker")
    one.add_argument("--broker-defaults", action="store_true", help="the settings that all brokers share")
    one.add_argument("--broker-logger", metavar="ID", help="the log levels of this broker")
    one.add_argument("--group", metavar="GROUP", help="the settings of this group")
    one.add_argument("--client-metrics", metavar="NAME", help="the settings of this client metrics subscription")
    one.add_argument("--entity-type", choices=KINDS, help="like kafka-configs, together with --entity-name")
    parser.add_argument("--entity-name", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--entity-default", action="store_true", help=argparse.SUPPRESS)


def resource(options: argparse.Namespace) -> ConfigResource:
    """Returns the resource that the options specify. Raises ValueError."""
    from odradek.client.administration.configs import ConfigResource, ConfigType

    if options.broker_defaults:
        return ConfigResource(ConfigType.BROKER, "")
    for kind, config_type in KINDS.items():
        name = getattr(options, config_type.lower())
        if name is not None:
            return _resource(kind, name)
    if options.entity_default and options.entity_type == "brokers":
        return ConfigResource(ConfigType.BROKER, "")
    if not options.entity_name:
        raise ValueError("--entity-type needs --entity-name")
    return _resource(options.entity_type, options.entity_name)


def _resource(kind: str, name: str) -> ConfigResource:
    from odradek.client.administration.configs import ConfigResource, ConfigType

    if kind.startswith("broker") and not name.isdecimal():
        raise ValueError(f"{name!r} is not the id of a broker. `odradek cluster describe` lists the brokers")
    return ConfigResource(ConfigType[KINDS[kind]], name)


def changes(add: str, delete: str) -> list[ConfigChange]:
    """Parses --add-config and --delete-config. Raises ValueError."""
    from odradek.client.administration.configs import AlterOperation, ConfigChange

    found: list[ConfigChange] = []
    position = 0
    while position < len(add):
        setting = SETTING.match(add, position)
        if setting is None:
            raise ValueError(f"--add-config {add}: write NAME=VALUE, or several separated by commas")
        name, listed, value = setting.groups()
        found.append(ConfigChange(AlterOperation.SET, name, (listed if listed is not None else value).strip()))
        position = setting.end()
    names = [name.strip() for name in delete.split(",") if name.strip()]
    found += [ConfigChange(AlterOperation.DELETE, name) for name in names]
    if not found:
        raise ValueError("give --add-config or --delete-config")
    return found


def _check(options: argparse.Namespace) -> None:
    resource(options)
    changes(options.add_config, options.delete_config)


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    rows = [
        {"name": each.name, "value": each.value, "source": each.source}
        | {"read_only": each.is_read_only, "sensitive": each.is_sensitive}
        for each in await admin.describe_configs(resource(options))
        if options.all or each.is_dynamic
    ]
    for row in rows if not options.json else ():
        if row["sensitive"]:
            row["value"] = "(hidden)"
    empty = "All settings have their default values. Add --all to show them."
    print_rows(rows, headings("name value source"), as_json=options.json, empty=empty)


async def alter(admin: Admin, options: argparse.Namespace) -> None:
    target = resource(options)
    await admin.alter_configs({target: changes(options.add_config, options.delete_config)})
    kind = target.type.name.lower().replace("_", " ")
    print(f"Changed the settings of {f'the {kind} {target.name}' if target.name else 'all brokers'}.")
