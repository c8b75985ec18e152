"""A row of the table of control calls: what the server serves, the document describes, and clients send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

JsonSchema: TypeAlias = Mapping[str, Any]


class CallScope(Enum):
    """Below which paths a call is served."""

    PROCESS = "once, for the whole process"
    NAMED = "below /clusters/{id} only"
    CLUSTER = "below /clusters/{id}, and without it for the cluster `default`"


class FieldKind(Enum):
    """How a person writes a field on the command line."""

    TEXT = "text"
    NUMBER = "a whole number"
    SWITCH = "an option without a value, which makes the field false"
    TEXT_PAIRS = "NAME=VALUE, whose values are texts"
    JSON_PAIRS = "NAME=VALUE, whose values are JSON, or else texts"
    JSON_LIST = "JSON, once for each item of a list"
    NUMBER_OR_NUMBERS = "a whole number, or several with commas between them"
    DOCUMENT = "JSON, @FILE, or - for the standard input"


@dataclass(frozen=True, slots=True)
class CallField:
    """One field of a call: a part of its path, of its query, of its headers or of its body.

    schema       JSON schema of its values, without null
    words        what it means, for the OpenAPI document and for `odradek control --help`
    is_nullable  whether null is an answer too, and means the same as leaving the field out
    option       the option of `odradek control` that gives it; None for an argument in its place
    metavar      how the help names its value; "" for a field that `odradek control` does not ask for
    default      the value that the command sends if it is not given
    is_asked     whether the command asks for it although the call may be made without it
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
        """The JSON schema of the field, null included."""
        described = {"description": self.words} if self.words else {}
        if not self.is_nullable:
            return {**self.schema, **described}
        if isinstance(self.schema.get("type"), str):
            return {**self.schema, "type": [self.schema["type"], "null"], **described}
        return {"oneOf": [*self.schema.get("oneOf", [self.schema]), {"type": "null"}], **described}


@dataclass(frozen=True, slots=True)
class ControlCall:
    """One call of the control interface.

    action         the action of `odradek control` that makes it; None where no action does
    words          what the call does, as an imperative sentence without its full stop
    path           below that of the cluster, or below /control/v1 where `scope` is PROCESS
    path_fields    those that `path` names; the last of them may be left out with the `/` before it if not required
    body           fields of the JSON object that is sent; None for a call whose body is not looked at
    document       the whole body, where it is not an object of fields
    has_any_field  whether the body may have more fields than `body` names, which the command takes as NAME=VALUE
    status         of the answer if it is done
    answer         JSON schema of the answer; None for an answer in another form, see `media_types`
    also           further statuses that are answers and no refusals, with their words
    is_noted       whether recordings of the cluster keep the call, as what changed what clients see
    python         the methods of `odradek.testing.sync` that make it
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
        """Yields each path below /control/v1 at which the call is served, and whether it names a cluster."""
        short = [self.path]
        if self.path_fields and not self.path_fields[-1].is_required:
            short.insert(0, self._without_last())
        for path in short:
            if self.scope is not CallScope.NAMED:
                yield path, False
            if self.scope is not CallScope.PROCESS:
                yield f"/clusters/{{id}}{path}", True

    def request(self, values: Mapping[str, object]) -> tuple[str, str, object]:
        """Returns the method, the path below that of the cluster with the query, and the body that carry the values.

        A value of None leaves a field of the path or of the query out; in the body it is null.

        Raises TypeError for values that the call does not have, and for required ones that are missing.
        """
        left = dict(values)
        path = self.path
        for field in self.path_fields:
            value = left.pop(field.name, None)
            if value is not None:
                path = path.replace(f"{{{field.name}}}", quote(str(value), safe=""))
            elif field.is_required:
                raise TypeError(f"the control call {self.name} needs {field.name}")
            else:
                path = self._without_last()
        chosen = {each.name: value for each in self.query if (value := left.pop(each.name, None)) is not None}
        if chosen:
            path += f"?{urlencode(chosen, quote_via=quote)}"
        body = self._body(left) if self.document is None else left.pop(self.document.name)
        if left:
            raise TypeError(f"the control call {self.name} has no {', '.join(sorted(left))}")
        return self.method, path, body

    def _body(self, left: dict[str, object]) -> object:
        """Takes the values of the body out of `left`."""
        sent: dict[str, object] = {}
        for field in self.body or ():
            if field.name in left:
                sent[field.name] = left.pop(field.name)
            elif field.is_required:
                raise TypeError(f"the control call {self.name} needs {field.name}")
        if self.has_any_field:
            sent |= left
            left.clear()
        return sent if self.method == "POST" else None

    def _without_last(self) -> str:
        return self.path.rpartition("/")[0]
