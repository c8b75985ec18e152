"""Implements `odradek quotas`, which lists, sets and removes quotas for users, clients and addresses, like
kafka-configs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.tools.commands.options import CommandActions, setting
from odradek.tools.commands.output import headings, print_object, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.users import QuotaEntity

# Each option's entity type, metavar and help. The same option with the suffix -defaults selects the entity type's
# default.
ENTITIES = {
    "user": ("user", "NAME", "this user, without the prefix User:"),
    "client": ("client-id", "ID", "clients with this client.id"),
    "ip": ("ip", "ADDRESS", "connections from this address; the only quota for them is connection_creation_rate"),
}
DEFAULT_ENTITY = "<default>"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("list", "list all quotas, or those of one entity", list_, json=True) as listing:
        _add_entity(listing)
    with actions.add(
        "set", "set quotas of an entity, and leave its other quotas unchanged", set_, _check_set
    ) as setting_:
        setting_.add_argument(
            "limits",
            nargs="+",
            type=setting,
            metavar="QUOTA=NUMBER",
            help="producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (100 is one"
            " thread), controller_mutation_rate (partitions per second), connection_creation_rate (connections"
            " per second from an address)",
        )
        _add_entity(setting_)
    with actions.add("unset", "remove quotas of an entity", unset, entity) as unsetting:
        unsetting.add_argument(
            "quotas", nargs="*", metavar="QUOTA", help="the names of the quotas; default: all quotas of the entity"
        )
        _add_entity(unsetting)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for option, (_, metavar, words) in ENTITIES.items():
        one = parser.add_mutually_exclusive_group()
        one.add_argument(f"--{option}", metavar=metavar, help=words)
        one.add_argument(
            f"--{option}-defaults", action="store_true", help=f"every {option} that has no quota of its own"
        )


def _named_entity(options: argparse.Namespace) -> QuotaEntity:
    found: dict[str, str | None] = {}
    for option, (kind, _, _) in ENTITIES.items():
        name = getattr(options, option)
        if name is not None or getattr(options, f"{option}_defaults"):
            found[kind] = name
    return found


def entity(options: argparse.Namespace) -> QuotaEntity:
    """Returns the entity that the options specify. Raises ValueError if they do not specify one."""
    found = _named_entity(options)
    if not found:
        raise ValueError(
            "no user, client or address is given: add --user, --client, both, or --ip; or --user-defaults,"
            " --client-defaults or --ip-defaults for all that have no quota of their own"
        )
    return found


def _check_set(options: argparse.Namespace) -> None:
    entity(options)
    limits(options)


def limits(options: argparse.Namespace) -> dict[str, float]:
    """Returns the quotas to set. Raises ValueError."""
    found = {}
    for name, value in options.limits:
        try:
            found[name] = float(value)
        except ValueError:
            raise ValueError(f"{name}={value}: {value!r} is not a number") from None
    return found


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import describe_quotas

    found = sorted(
        await describe_quotas(admin.requests, _named_entity(options)),
        key=lambda quota: [(kind in quota.entity, quota.entity.get(kind) or "") for kind, _, _ in ENTITIES.values()],
    )
    if options.json:
        print_object([{"entity": dict(quota.entity), "quotas": dict(quota.limits)} for quota in found])
        return
    rows = [
        {"entity": entity_text(quota.entity), "quota": name, "limit": f"{limit:.15g}"}
        for quota in found
        for name, limit in sorted(quota.limits.items())
    ]
    print_rows(rows, headings("entity quota limit", entity="OF"), as_json=False, empty="No quotas are set.")


async def set_(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import alter_quotas

    whose = entity(options)
    await alter_quotas(admin.requests, whose, limits(options))
    print(f"Set the quotas of {entity_text(whose)}.")


async def unset(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import alter_quotas, describe_quotas

    whose = entity(options)
    names = options.quotas or [
        name for quota in await describe_quotas(admin.requests, whose, strict=True) for name in quota.limits
    ]
    if not names:
        print(f"There are no quotas of {entity_text(whose)}.")
        return
    await alter_quotas(admin.requests, whose, dict.fromkeys(names))
    print(f"Removed the quotas of {entity_text(whose)}.")


def entity_text(whose: QuotaEntity) -> str:
    """Formats an entity, for example `user alice, client-id <default>`."""
    return ", ".join(f"{kind} {DEFAULT_ENTITY if name is None else name}" for kind, name in whose.items())
