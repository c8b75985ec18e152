"""Defines the classes that describe a control call. The server, the OpenAPI document and the clients are based on these
descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

JsonSchema: TypeAlias = Mapping[str, Any]


class CallScope(Enum):
    """A call's scope, which determines the paths at which it is available."""

    PROCESS = "once, for the whole process"
    NAMED = "below /clusters/{id} only"
    CLUSTER = "below /clusters/{id}, and without it for the cluster `default`"


class FieldKind(Enum):
    """How a field is written on the command line."""

    TEXT = "text"
    NUMBER = "a whole number"
    SWITCH = "an option without a value, which makes the field false"
    TEXT_PAIRS = "NAME=VALUE, where each value is a string"
    JSON_PAIRS = "NAME=VALUE, where each value is JSON or else a string"
    JSON_LIST = "JSON, given once for each item of a list"
    NUMBER_OR_NUMBERS = "a whole number, or several separated by commas"
    DOCUMENT = "JSON, @FILE, or - for standard input"
    TEXT_DOCUMENT = "text, @FILE, or - for standard input"


@dataclass(frozen=True, slots=True)
class CallField:
    """A field of a call, in its path, query, headers or body.

    schema       JSON schema of the values, not including null
    words        the meaning, for the OpenAPI document and for `odradek control --help`
    is_nullable  whether null is allowed, with the same meaning as a missing field
    option       the option of `odradek control` for this field; None if the field is a positional argument
    metavar      the value's name in the help; empty if `odradek control` does not offer the field
    default      the value that the command sends if the user does not give one
    is_asked     whether the command requires the field although the call does not
    """

    name: str
    kind: FieldKind
    schema: JsonSchema
    words: str = ""
    is_required: bool = False
    is_nullable: bool = False
    option: str | None = None
    metavar: str = ""
    default: int | None = None
    is_asked: bool = False

    @property
    def full_schema(self) -> JsonSchema:
        """The field's JSON schema, including null if it is allowed."""
        described = {"description": self.words} if self.words else {}
        if not self.is_nullable:
            return {**self.schema, **described}
        if isinstance(self.schema.get("type"), str):
            return {**self.schema, "type": [self.schema["type"], "null"], **described}
        return {"oneOf": [*self.schema.get("oneOf", [self.schema]), {"type": "null"}], **described}


@dataclass(frozen=True, slots=True)
class ControlCall:
    """A call of the control interface.

    action         the action of `odradek control` for this call; None if there is none
    words          what the call does, as an imperative sentence without its full stop
    path           relative to the cluster's path, or to /control/v1 if `scope` is PROCESS
    path_fields    the fields in `path`. If the last one is not required, it can be omitted together with the `/` before
                   it
    body           fields of the JSON object in the body; None if the body is ignored, or described by `document`
    document       describes the complete body if the body is not an object with known fields
    has_any_field  whether the body may have fields in addition to those in `body`; the command accepts them as
                   NAME=VALUE
    status         HTTP status of a successful response
    answer         JSON schema of the response; None if the response is not JSON, see `media_types`
    also           other HTTP statuses that are not errors, with their descriptions
    is_noted       whether recordings of the cluster include the call, because it changes what clients observe
    python         the methods of `odradek.testing.sync` that make the call
    """

    name: str
    method: str
    path: str
    words: str
    scope: CallScope = CallScope.CLUSTER
    action: str | None = None
    path_fields: tuple[CallField, ...] = ()
    query: tuple[CallField, ...] = ()
    headers: tuple[CallField, ...] = ()
    body: tuple[CallField, ...] | None = None
    document: CallField | None = None
    has_any_field: bool = False
    status: int = 200
    answer: JsonSchema | None = None
    media_types: tuple[str, ...] = ("application/json",)
    also: Mapping[int, str] | None = None
    is_noted: bool = False
    python: tuple[str, ...] = ()

    @property
    def reads_body(self) -> bool:
        return self.body is not None or self.document is not None

    @property
    def body_names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.body or ())

    @property
    def query_names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.query)

    def paths(self) -> Iterator[tuple[str, bool]]:
        """Yields each path of the call below /control/v1, and whether the path names a cluster."""
        short = [self.path]
        if self.path_fields and not self.path_fields[-1].is_required:
            short.insert(0, self._without_last())
        for path in short:
            if self.scope is not CallScope.NAMED:
                yield path, False
            if self.scope is not CallScope.PROCESS:
                yield f"/clusters/{{id}}{path}", True

    def request(self, values: Mapping[str, object]) -> tuple[str, str, object]:
        """Returns the method, the path with the query, and the body of a request with these values.

        The path is relative to the cluster's path. A value of None omits a path or query field. In the body, None
        becomes null.

        Raises TypeError if a value has no field, or if a required value is missing.
        """
        left = dict(values)
        path = self.path
        for field in self.path_fields:
            value = left.pop(field.name, None)
            if value is not None:
                path = path.replace(f"{{{field.name}}}", quote(str(value), safe=""))
            elif field.is_required:
                raise TypeError(f"the control call {self.name} requires the field {field.name}")
            else:
                path = self._without_last()
        chosen = {each.name: value for each in self.query if (value := left.pop(each.name, None)) is not None}
        if chosen:
            path += f"?{urlencode(chosen, quote_via=quote)}"
        body = self._body(left) if self.document is None else left.pop(self.document.name)
        if left:
            raise TypeError(f"the control call {self.name} has no field {', '.join(sorted(left))}")
        return self.method, path, body

    def _body(self, left: dict[str, object]) -> object:
        """Returns the body and removes its values from `left`."""
        sent: dict[str, object] = {}
        for field in self.body or ():
            if field.name in left:
                sent[field.name] = left.pop(field.name)
            elif field.is_required:
                raise TypeError(f"the control call {self.name} requires the field {field.name}")
        if self.has_any_field:
            sent |= left
            left.clear()
        return sent if self.method == "POST" else None

    def _without_last(self) -> str:
        return self.path.rpartition("/")[0]
