"""Implements `odradek acls`, which lists, adds and removes ACLs, like kafka-acls."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.protocol.acls import ANY_HOST, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.tools.commands.options import CommandActions, add_list
from odradek.tools.commands.output import headings, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.users import Acl, AclFilter

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
# The operations that --producer and --consumer allow, keyed by resource type.
PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE), ResourceType.GROUP: (Operation.READ,)}
NAMES = {
    "".join(word.capitalize() for word in each.name.split("_")): each
    for each in Operation
    if each not in (Operation.UNKNOWN, Operation.ANY)
}
OPERATIONS = {name.lower(): each for name, each in NAMES.items()}


@dataclass(frozen=True, slots=True)
class Resource:
    type: ResourceType
    name: str
    pattern_type: PatternType


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("list", "list all ACLs, or those of a resource or principal", list_, json=True) as listing:
        _add_resources(listing, "only ACLs that apply to this resource, including those for prefixes and for *")
        listing.add_argument("--principal", metavar="User:NAME", help="only the ACLs of this principal")
    for name, act, help in (("add", add, "add ACLs that allow or deny operations"), ("remove", remove, "remove ACLs")):
        with actions.add(name, help, act, acls_of) as action:
            _add_resources(action, "the resource with this name; * means every resource of this kind")
            _add_rights(action)


def _add_resources(parser: argparse.ArgumentParser, help: str) -> None:
    for name in RESOURCES:
        words = [f"--{name.replace('_', '-')}"]
        if name == "topic":
            words.insert(0, "-t")
        add_list(parser, *words, metavar="NAME", help=help)
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--resource-pattern-type",
        choices=("literal", "prefixed"),
        default="literal",
        help="whether names of resources are complete names (literal) or prefixes (prefixed); default: %(default)s",
    )


def _add_rights(parser: argparse.ArgumentParser) -> None:
    add_list(parser, "--allow-principal", metavar="User:NAME", help="allow this principal")
    add_list(parser, "--deny-principal", metavar="User:NAME", help="deny this principal")
    parser.add_argument(
        "--allow-host", default=ANY_HOST, metavar="ADDRESS", help="allow from this address; default: any"
    )
    parser.add_argument("--deny-host", default=ANY_HOST, metavar="ADDRESS", help="deny from this address; default: any")
    add_list(
        parser,
        "--operation",
        type=_operation,
        metavar="NAME",
        help=f"one of {', '.join(NAMES)}; default: All",
    )
    parser.add_argument(
        "--producer",
        action="store_true",
        help="grant the permissions that a producer needs on the topics and transactional ids",
    )
    parser.add_argument(
        "--consumer", action="store_true", help="grant the permissions that a consumer needs on the topics and groups"
    )
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer, also grant IdempotentWrite on the cluster"
    )


def _operation(text: str) -> Operation:
    found = OPERATIONS.get(text.replace("_", "").lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an operation: give one of {', '.join(NAMES)}")
    return found


def _resources(options: argparse.Namespace) -> list[Resource]:
    pattern_type = PatternType[options.resource_pattern_type.upper()]
    found = [
        Resource(resource_type, name, pattern_type)
        for option, resource_type in RESOURCES.items()
        for name in getattr(options, option)
    ]
    if options.cluster:
        found.append(Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return found


def acls_of(options: argparse.Namespace) -> list[Acl]:
    """Returns the ACLs to add or remove. Raises ValueError if the principal or the resource is missing."""
    from odradek.client.administration.users import Acl

    principals = [(each, options.allow_host, Permission.ALLOW) for each in options.allow_principal]
    principals += [(each, options.deny_host, Permission.DENY) for each in options.deny_principal]
    if not principals:
        raise ValueError("no principal is given: add --allow-principal User:NAME or --deny-principal User:NAME")
    if wrong := [each for each, _, _ in principals if not each.partition(":")[2]]:
        raise ValueError(f"{wrong[0]!r} is not a principal; write User:NAME")
    found = [
        Acl(resource.type, resource.name, principal, operation, permission, resource.pattern_type, host)
        for resource, operation in _rights(options)
        for principal, host, permission in principals
    ]
    if not found:
        raise ValueError("no resource is given: add --topic, --group, --cluster or another resource")
    return found


def _rights(options: argparse.Namespace) -> Iterator[tuple[Resource, Operation]]:
    roles = [role for is_asked, role in ((options.producer, PRODUCER), (options.consumer, CONSUMER)) if is_asked]
    if options.operation and roles:
        raise ValueError("--producer and --consumer choose the operations; leave out --operation")
    for resource in _resources(options):
        if roles:
            operations = [each for role in roles for each in role.get(resource.type, ())]
        else:
            operations = options.operation or [Operation.ALL]
        yield from ((resource, operation) for operation in dict.fromkeys(operations))
    if options.idempotent:
        yield Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL), Operation.IDEMPOTENT_WRITE


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import AclFilter, describe_acls

    pattern = PatternType.PREFIXED if options.resource_pattern_type == "prefixed" else PatternType.MATCH
    filters = [AclFilter(each.type, each.name, options.principal, pattern_type=pattern) for each in _resources(options)]
    found = [
        acl
        for each in filters or [AclFilter(principal=options.principal)]
        for acl in await describe_acls(admin.requests, each)
    ]
    rows = [_row(acl) for acl in sorted(dict.fromkeys(found), key=lambda acl: tuple(map(str, _row(acl).values())))]
    columns = headings("resource name pattern principal host operation permission")
    print_rows(rows, columns, as_json=options.json, empty="No ACLs.")


def _row(acl: Acl) -> dict[str, str]:
    return {
        "resource": acl.resource_type.name,
        "name": acl.resource,
        "pattern": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


async def add(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import create_acls

    acls = acls_of(options)
    await create_acls(admin.requests, acls)
    print(f"Added {_count(len(acls))}.")


async def remove(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import delete_acls

    deleted = await delete_acls(admin.requests, [_exactly(acl) for acl in acls_of(options)])
    print(f"Removed {_count(len(deleted))}.")


def _exactly(acl: Acl) -> AclFilter:
    from odradek.client.administration.users import AclFilter

    return AclFilter(
        acl.resource_type, acl.resource, acl.principal, acl.operation, acl.permission, acl.pattern_type, acl.host
    )


def _count(acls: int) -> str:
    return f"{acls} ACL{'s' if acls != 1 else ''}"
