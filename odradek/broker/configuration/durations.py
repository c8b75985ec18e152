"""ISO-8601 durations as Java's `Duration.parse` reads them: `PnDTnHnMn.nS`, each number with a sign if wanted."""

from __future__ import annotations

import re
from typing import Final

DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?=.)(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
MAX_SECONDS: Final = (1 << 63) - 1


def duration_ms(text: str) -> int | None:
    """Milliseconds, rounded down; None for what is no duration, or does not fit into 64 bits of seconds."""
    found = DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    nanos = int(((found["fraction"] or "") + "0" * 9)[:9])
    if (found["seconds"] or "").startswith("-"):
        nanos = -nanos
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 10**9 + nanos
    if found["sign"] == "-":
        total = -total
    return total // 10**6 if abs(total) // 10**9 <= MAX_SECONDS else None
