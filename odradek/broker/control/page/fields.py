"""What the JSON body of an action says: each field has a type, and what is wrong is refused in words."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.protocol.errors import ErrorCode, KafkaError


class Fields:
    """Raises KafkaError, INVALID_REQUEST, for what is missing, of another type, or not known."""

    def __init__(self, body: object, known: frozenset[str]) -> None:
        if not isinstance(body, Mapping):
            raise refused("the body has to be a JSON object")
        if unknown := sorted(set(body) - known):
            raise refused(f"there is no field {unknown[0]}; fields are {', '.join(sorted(known))}")
        self._body: Mapping[str, object] = body

    def __contains__(self, name: str) -> bool:
        return self._body.get(name) is not None

    def text(self, name: str) -> str:
        found = self._body.get(name)
        if not isinstance(found, str) or not found:
            raise refused(f"{name} has to be a text that is not empty")
        return found

    def number(self, name: str, *, least: int, default: int | None = None) -> int:
        found = self._body.get(name)
        if found is None and default is not None:
            return default
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found < 2**63:
            raise refused(f"{name} has to be a whole number, {least} at least")
        return found

    def texts(self, name: str) -> Mapping[str, str]:
        """Text to text; empty if it is not there."""
        found = self._body.get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
            raise refused(f"{name} has to be an object with texts")
        return found


def refused(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)
