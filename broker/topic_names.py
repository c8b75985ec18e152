"""What a topic may be called, and which names are the broker's own. Source: Kafka 4.3.1, observed."""

import re

MAX_LENGTH = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def why_invalid(topic: str) -> str | None:
    """What is wrong with this name, in words for the client; None if nothing is."""
    if not topic:
        return "a topic needs a name"
    if topic in (".", ".."):
        return f"{topic!r} is no topic name, but a directory's"
    if len(topic) > MAX_LENGTH:
        return f"{len(topic)} characters are more than {MAX_LENGTH}"
    if not LEGAL.fullmatch(topic):
        return f"{topic!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def is_internal(topic: str) -> bool:
    """Clients read such a topic, but do not write into it."""
    return topic in INTERNAL_TOPICS
