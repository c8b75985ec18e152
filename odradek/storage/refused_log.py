"""A log that a start has refused as damaged stays refused until a person decides, whatever starts come in between.

The start that finds the damage takes the mark of the clean stop away. The next one would take the log for one that a
crash has left, and cut off what does not follow from the damaged batch. A file in the log's directory prevents that; it
holds the reason, for people. Kafka passes over it.
"""

from __future__ import annotations

import logging

from odradek.storage.disk import Disk

logger = logging.getLogger(__name__)

REFUSED = ".odradek_refused"


def remembered_refusal(disk: Disk, directory: str) -> str | None:
    """Why an earlier start refused the log in this directory, and what to do about it."""
    path = f"{directory}/{REFUSED}"
    if not disk.exists(path):
        return None
    reason = disk.read_bytes(path).decode("utf-8", "replace").strip()
    return (
        f"{reason}. An earlier start found that: restore the file, or accept what recovery makes of the log; "
        f"then remove {path} and start again"
    )


def remember_refusal(disk: Disk, directory: str, reason: str) -> None:
    """Durable when it returns. A disk that refuses it is told of in the log."""
    try:
        disk.replace(f"{directory}/{REFUSED}", f"{reason}\n".encode())
    except OSError as error:
        logger.warning("%s/%s cannot be written (%s): the next start may cut this log", directory, REFUSED, error)
