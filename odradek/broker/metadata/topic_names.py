"""Checks topic names. Source: Kafka 4.3.1, including its error messages."""

import re

from odradek.broker.configuration.settings import InvalidSetting

MAX_LENGTH = 249


def check_topic_name(name: str) -> None:
    """Raises InvalidSetting if a topic name is invalid. The error message is for the client; the corresponding error
    code is INVALID_TOPIC_EXCEPTION."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    elif not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidSetting(f"Topic name is invalid: {why}")


def is_valid_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidSetting:
        return False
    return True


def collision_key(name: str) -> str:
    """Returns a key that is equal for topic names with the same metric name (`.` becomes `_`). Kafka permits only one
    topic for each key."""
    return name.replace(".", "_")
