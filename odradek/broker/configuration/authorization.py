"""The settings of the authorizer, as Kafka's StandardAuthorizer reads them. Source: docs/spec/security.md#s1-1, 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.configuration.settings import InvalidSetting

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BOOLEANS = {"true": True, "false": False}


def check_authorizer(class_name: str) -> None:
    """Empty: none. Raises InvalidSetting."""
    if class_name not in ("", STANDARD_AUTHORIZER):
        raise InvalidSetting(f"the one authorizer that is served is {STANDARD_AUTHORIZER}; without it leave this out")


def super_users(text: str) -> frozenset[str]:
    """`User:a;User:b`. Raises InvalidSetting."""
    users = frozenset(user for part in text.split(";") if (user := part.strip()))
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise InvalidSetting(f"{user} is no principal: write User:{user}; several are separated by semicolons")
    return users


def allows_everyone(text: str) -> bool:
    """Raises InvalidSetting."""
    value = BOOLEANS.get(text.strip().lower())
    if value is None:
        raise InvalidSetting("must be true or false")
    return value


# Each raises InvalidSetting where a broker cannot start with the value.
AUTHORIZER_CHECKS: Mapping[str, Callable[[str], object]] = {
    "authorizer.class.name": check_authorizer,
    "super.users": super_users,
    "allow.everyone.if.no.acl.found": allows_everyone,
}
