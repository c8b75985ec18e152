"""The views of ACLs, users with passwords, and quotas. The data for all three comes from the broker's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.http.page.served import order_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.broker.http.page.served import Job, JsonValue, Query, ViewedBroker
    from odradek.broker.security.acl.acls import Acl
    from odradek.broker.security.quotas.entities import QuotaEntity
    from odradek.broker.security.sasl.credentials import ScramCredential

ACL_COLUMNS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
USER_COLUMNS = ("user", "mechanism", "iterations")
QUOTA_COLUMNS = ("entity", "limit", "value")
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Rows = list["dict[str, JsonValue]"]


async def acls(served: ViewedBroker, query: Query) -> Job:
    """Lists ACLs. `find` is a substring of the principal or of the resource's name; for `sort` and `from`, see
    `Order`."""
    rows: Rows = []
    part = query.get("find", "")

    def add(item: tuple[bytes, Acl]) -> None:
        acl = item[1]
        if part in acl.principal or part in acl.name:
            row: dict[str, JsonValue] = {
                "principal": acl.principal,
                "permission": acl.permission.name,
                "operation": acl.operation.name,
                "resource": acl.resource.name.lower().replace("_", " "),
                "name": acl.name,
                "pattern": acl.pattern.name.lower(),
                "host": acl.host,
            }
            rows.append(row)

    await served.visit(list(served.broker.metadata.image.acls.items()), add)
    return listed("acls", rows, query, ACL_COLUMNS)


async def users(served: ViewedBroker, query: Query) -> Job:
    """Lists users with SCRAM credentials, without salts and keys. `find` is a substring of the user's name; for `sort`
    and `from`, see `Order`."""
    rows: Rows = []
    part = query.get("find", "")

    def add(item: tuple[str, dict[int, ScramCredential]]) -> None:
        user, credentials = item
        if part in user:
            rows.extend(
                {"user": user, "mechanism": MECHANISMS.get(mechanism, "unknown"), "iterations": each.iterations}
                for mechanism, each in sorted(credentials.items())
            )

    await served.visit(list(served.broker.metadata.image.scram_credentials.by_user.items()), add)
    return listed("users", rows, query, USER_COLUMNS)


async def quotas(served: ViewedBroker, query: Query) -> Job:
    """Lists quotas. `find` is a substring of the entity; for `sort` and `from`, see `Order`."""
    rows: Rows = []
    part = query.get("find", "")

    def add(item: tuple[QuotaEntity, dict[str, float]]) -> None:
        entity, limits = item
        name = ", ".join(f"{kind} {'(default)' if of is None else of}" for kind, of in entity)
        if part in name:
            of = {kind.replace("-", "_"): each or "" for kind, each in entity}
            rows.extend(
                {"entity": name, "of": of, "limit": limit, "value": value} for limit, value in sorted(limits.items())
            )

    await served.visit(list(served.broker.metadata.image.client_quotas.limits.items()), add)
    return listed("quotas", rows, query, QUOTA_COLUMNS)


def listed(name: str, rows: Rows, query: Query, columns: Sequence[str]) -> Job:
    """Returns a job that sorts the rows and returns the requested part of them. Raises KafkaError if the list does not
    support the requested order."""
    order = order_of({**query, "sort": query.get("sort") or columns[0]}, columns)
    return lambda: {"total": len(rows), "from": order.start, name: order.visible_rows(rows)}
