"""Errors returned by the control interface as problem documents, and checks on its requests. Source: RFC 9457."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches


class Problem(Exception):
    """An error that the control interface returns as a problem document.

    field    path of the invalid field in the body, or None if the error is not about a field
    allowed  the allowed values of the field
    """

    def __init__(self, status: int, detail: str, *, field: str | None = None, allowed: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field
        self.allowed = allowed

    def document(self) -> dict[str, object]:
        body: dict[str, object] = {"type": "about:blank", "status": self.status, "detail": str(self)}
        if self.field is not None:
            body["field"] = self.field
        if self.allowed is not None:
            body["allowed"] = self.allowed
        return body


def invalid_field(field: str, allowed: str) -> Problem:
    return Problem(400, f"{field} must be {allowed}", field=field, allowed=allowed)


def nearest(name: str, known: Collection[str]) -> str:
    """Returns the end of an error message that suggests the most similar known name, or an empty string if no known
    name is similar."""
    near = get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_field(field: str, name: str, known: Collection[str]) -> Problem:
    return Problem(
        400, f"{field}: {name} is unknown{nearest(name, known)}", field=field, allowed=", ".join(sorted(known))
    )


def check_known_fields(value: Mapping[str, object], known: Collection[str], field: str = "") -> None:
    """Raises Problem for the first key that is not a known field."""
    for key in value:
        if key not in known:
            raise unknown_field(f"{field}.{key}" if field else key, key, known)


def text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise invalid_field(field, "a non-empty string")
    return value


def whole_number(value: object, field: str, least: int = 0, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid_field(field, f"a whole number from {least} to {most}")
    return value


def mapping(value: object, field: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise invalid_field(field, "an object")
    return value
