"""Edits to responses. An edit changes the fields or array elements named by a path. All functions of this module are
pure.

When a rule is created, its paths and values are checked against the response's schema. When an edit is applied, the
broker also checks whether that response has the array elements, and whether its version has the field.
"""

from __future__ import annotations

import re
import sys
from base64 import b64decode, urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.broker.control.problems import Problem, invalid_field, mapping, unknown_field, whole_number
from odradek.protocol.messages import response_class
from odradek.protocol.schema import INTEGERS, NO_VERSIONS, Versions, load, snake_case
from odradek.protocol.struct import Struct

if TYPE_CHECKING:
    from odradek.protocol.api_keys import ApiKey
    from odradek.protocol.schema import Field, Schema

ARRAY_OPERATIONS: Final = frozenset({"reverse", "order"})
ELEMENT_OPERATIONS: Final = frozenset({"remove", "duplicate"})
EDITS: Final = (
    'a value, {"remove": true}, {"duplicate": true}, {"reverse": true}, {"order": [2, 0]} or {"corrupt": true}'
)
PATH: Final = re.compile(r"[A-Za-z]\w*(\[(\d{1,9}|\*)\])?(\.([A-Za-z]\w*(\[(\d{1,9}|\*)\])?|\d{1,9}|\*))*")
UUID_BYTES: Final = 16


class EditNotApplied(Exception):
    """Raised if an edit cannot be applied to a response; the message names the missing element."""


class NoSuchField(EditNotApplied):
    """Raised if the response's version does not have the edit's field."""


def apply_edits(edits: Sequence[Edit], answer: Struct, version: int) -> None:
    """Applies all edits of a rule to a response. Raises EditNotApplied; in that case, the response may have been partly
    changed.

    An edit is skipped if this version of the response lacks its field, since clients of that version would not see the
    field anyway. If all edits of the rule are skipped, NoSuchField is raised.
    """
    lacking: list[NoSuchField] = []
    for edit in edits:
        try:
            edit.apply(answer, version)
        except NoSuchField as why:
            lacking.append(why)
    if edits and len(lacking) == len(edits):
        raise lacking[0]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to one field of a response.

    path      the struct field names and array indexes that lead to the field; `*` means all elements
    how       `set`        sets the field to a copy of `value`
              `corrupt`    flips the last bit of bytes
              `remove`     removes an array element
              `duplicate`  inserts a copy of an array element right after the element
              `reverse`    reverses an array
              `order`      moves the elements whose indexes are in `value` to the front, in that order
    versions  each field on the path, with the versions of the response that have the field
    """

    path: tuple[str | int, ...]
    value: object
    operation: str = "set"
    versions: tuple[tuple[str, Versions], ...] = ()

    def apply(self, answer: Struct, version: int) -> None:
        """Applies the edit to a response. Raises EditNotApplied; in that case, the response may have been partly
        changed."""
        for name, versions in self.versions:
            if version not in versions:
                raise NoSuchField(f"version {version} of the answer has no {name}")
        places: list[object] = [answer]
        steps = self.path if self.operation in ARRAY_OPERATIONS else self.path[:-1]
        for count, step in enumerate(steps, 1):
            below = [each for place in places for each in _below(place, step)]
            if not below:
                raise EditNotApplied(
                    f"the answer has no {path_text(self.path[:count])}: {_missing_element(places, step)}"
                )
            places = below
        if not sum([self._change(place) for place in places]):
            missing = _missing_element(places, self.path[-1])
            raise EditNotApplied(f"there is nothing to {self.operation} at {path_text(self.path)}: {missing}")

    def _change(self, place: object) -> bool:
        """Changes the struct or array that the path leads to. Returns False if there is nothing to change."""
        last = self.path[-1]
        if self.operation in ARRAY_OPERATIONS or self.operation in ELEMENT_OPERATIONS:
            return isinstance(place, list) and self._reshape(place, last)
        if not isinstance(place, Struct) or not isinstance(last, str):
            return False
        if self.operation == "set":
            setattr(place, last, deepcopy(self.value))
            return True
        value = getattr(place, last)
        if not value:
            return False
        setattr(place, last, b"".join((value[:-1], bytes(each ^ 1 for each in value[-1:]))))
        return True

    def _reshape(self, array: list[object], index: str | int) -> bool:
        if self.operation == "reverse":
            array.reverse()
        elif isinstance(self.value, tuple):  # `operation` is `order`
            first = [each for each in self.value if each < len(array)]
            array[:] = [array[each] for each in [*first, *(each for each in range(len(array)) if each not in first)]]
        elif isinstance(index, int):
            if index >= len(array):
                return False
            if self.operation == "remove":
                del array[index]
            else:
                array.insert(index, array[index])
        elif self.operation == "remove":
            had = bool(array)
            array.clear()
            return had
        else:
            array[:] = [each for each in array for _ in range(2)]
        return bool(array) or self.operation == "remove"


def _below(place: object, step: str | int) -> list[object]:
    if isinstance(place, list):
        return list(place) if step == "*" else [place[step]] if isinstance(step, int) and step < len(place) else []
    found = getattr(place, step, None) if isinstance(step, str) else None
    return [] if found is None else [found]


def _missing_element(places: Iterable[object], step: str | int) -> str:
    sizes = [len(each) for each in places if isinstance(each, list)]
    if not sizes:
        return "it is null or empty"
    most = max(sizes)
    return f"the array has {most} element{'s' * (most != 1)}" if step != "*" else "the array is empty"


def path_text(path: Sequence[str | int]) -> str:
    """Formats a path as the control interface returns it, such as `topics[0].errorCode`."""
    text = ""
    for step in path:
        if isinstance(step, int) or step == "*":
            text += f"[{step}]"
        else:
            text += ("." if text else "") + json_name(step)
    return text


def _steps(path: str) -> list[str | int]:
    return [int(each) if each.isdecimal() else each for each in re.findall(r"[A-Za-z]\w*|\d+|\*", path)]


def edits_as_json(edits: Mapping[str, object]) -> dict[str, object]:
    """Returns edits with paths and field names spelled as in the control interface's responses."""
    return {path_text(_steps(path)): _with_schema_names(value) for path, value in edits.items()}


def _with_schema_names(value: object) -> object:
    if isinstance(value, list):
        return [_with_schema_names(each) for each in value]
    return (
        {json_name(name): _with_schema_names(each) for name, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def json_name(name: str) -> str:
    """Returns the name of a field in Kafka's JSON, such as `errorCode`. `GET …/requests` also uses these names."""
    first, *others = attribute_of(name).split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def attribute_of(name: str) -> str:
    """Returns the name of a field as an attribute of the message classes: `member_epoch` for `MemberEpoch` or
    `memberEpoch`."""
    return snake_case(name)


def parse_edit(api: ApiKey, path: str, value: object, versions: tuple[int, int] | None = None) -> Edit:
    """Parses one edit of a rule and checks it against the response's schema. Raises Problem.

    versions  the lowest and the highest version that the rule matches; None for all versions
    """
    at = f"do.edit.{path}"
    if PATH.fullmatch(path) is None:
        raise invalid_field(at, "a path to a field, such as topics[0].partitions[*].errorCode")
    how = "set"
    if isinstance(value, dict):
        if len(value) != 1 or not value.keys() <= ARRAY_OPERATIONS | ELEMENT_OPERATIONS | {"corrupt"}:
            raise invalid_field(at, EDITS)
        ((how, order),) = value.items()
        if how != "order" and order is not True:
            raise invalid_field(at, EDITS)
        if how == "order":
            value = _indexes(order, path)
    walk = _PathWalk(api, at)
    for step in _steps(path):
        walk.take_step(step)
    field, is_element = walk.field, walk.is_element
    assert field is not None, "a path begins with the name of a field"
    if how in ELEMENT_OPERATIONS and not is_element:
        raise invalid_field(at, "a path to an element, such as topics[0] or topics[*]")
    if how not in ELEMENT_OPERATIONS and is_element:
        raise invalid_field(at, "a path to a field, such as topics[0].partitions[*].errorCode, and its value")
    if how in ARRAY_OPERATIONS and not field.is_array:
        raise invalid_field(at, f"a path to an array, but {json_name(field.name)} is not an array")
    if how == "corrupt" and (field.is_array or field.type not in ("bytes", "records")):
        raise invalid_field(at, f"a path to bytes, but {json_name(field.name)} has the type {field.type_name}")
    if how == "set":
        value = walk.values.convert(field, value, at)
    known = tuple((json_name(each.name), each.versions) for each in walk.fields)
    served = range(response_class(api.value).MIN_VERSION, response_class(api.value).MAX_VERSION + 1)
    matched = [each for each in served if versions is None or versions[0] <= each <= versions[1]]
    for name, having in known:
        if matched and not any(each in having for each in matched):
            raise Problem(
                400,
                f"{at}: none of the versions that the rule matches has the field {name}",
                field=at,
                allowed=_versions_text(having),
            )
    return Edit(tuple(walk.path), value, how, known)


def _versions_text(versions: Versions) -> str:
    return f"versions {versions.lowest}{'+' if versions.highest is None else f'-{versions.highest}'}"


class _PathWalk:
    """Resolves an edit's path in a response's schema, step by step."""

    def __init__(self, api: ApiKey, at: str) -> None:
        answer = response_class(api.value)
        schema = load(answer.__module__.rpartition(".")[2])
        self.values = _Values(schema, vars(sys.modules[answer.__module__]))
        self._schema = schema
        self._at = at
        self._fields = schema.fields
        self.path: list[str | int] = []
        self.fields: list[Field] = []
        self.is_element = False

    @property
    def field(self) -> Field | None:
        return self.fields[-1] if self.fields else None

    def take_step(self, step: str | int) -> None:
        """Finds the field or element that the next step of the path names.

        Raises Problem if the schema does not contain the field or element.
        """
        field = self.field
        if isinstance(step, int) or step == "*":
            if field is None or not field.is_array or self.is_element:
                raise invalid_field(
                    self._at, f"a path without {step} after {path_text(self.path)}, which is not an array"
                )
            self.is_element = True
            self.path.append(step)
            return
        if field is not None and field.is_array and not self.is_element:
            name = path_text(self.path)
            raise invalid_field(self._at, f"a path with an element of the array {name}, such as {name}[0] or {name}[*]")
        found = find_field(self._fields, step, self._at)
        self.fields.append(found)
        self._fields = self._schema.structs.get(found.type, ())
        self.is_element = False
        self.path.append(found.attribute)


def find_field(fields: Sequence[Field], name: str, at: str) -> Field:
    """Returns the field with this name. If the field does not exist, raises Problem, which suggests the most similar
    name."""
    known = {each.attribute: each for each in fields}
    found = known.get(attribute_of(name))
    if found is None:
        raise unknown_field(at, json_name(name), [json_name(each.name) for each in fields])
    return found


class _Values:
    """Converts JSON values to message field values. The JSON has the form defined by `odradek.protocol.kafka_json`."""

    def __init__(self, schema: Schema, classes: Mapping[str, Callable[..., Struct]]) -> None:
        self._schema = schema
        self._classes = classes

    def convert(self, field: Field, value: object, at: str) -> object:
        """Returns the value for this field. If `value` has the wrong type, raises Problem, which names `at`."""
        if value is None:
            if field.nullable == NO_VERSIONS:
                raise invalid_field(at, f"{_kind(field)}, and cannot be null")
            return None
        if not field.is_array:
            return self._element(field, value, at)
        if not isinstance(value, list):
            raise invalid_field(at, f"a list of {field.type}")
        return [self._element(field, each, f"{at}[{index}]") for index, each in enumerate(value)]

    def _element(self, field: Field, value: object, at: str) -> object:
        if field.is_struct:
            fields = self._schema.structs[field.type]
            inner = {}
            for name, each in mapping(value, at).items():
                found = find_field(fields, name, f"{at}.{name}")
                inner[found.attribute] = self.convert(found, each, f"{at}.{name}")
            return self._classes[field.type](**inner)
        kind = field.type
        if kind in INTEGERS:
            bits = 8 * INTEGERS[kind][0] - (kind[0] != "u")
            if isinstance(value, bool) or not isinstance(value, int) or not -(2**bits) <= value < 2**bits:
                raise invalid_field(at, _kind(field))
            if kind[0] == "u" and value < 0:
                raise invalid_field(at, _kind(field))
        elif kind in ("uuid", "bytes", "records"):
            return _decoded(field, value, at)
        elif kind == "bool" and not isinstance(value, bool):
            raise invalid_field(at, "true or false")
        elif kind == "float64" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise invalid_field(at, "a number")
        elif kind == "string" and not isinstance(value, str):
            raise invalid_field(at, "a string")
        return value


def _kind(field: Field) -> str:
    if field.is_array:
        return f"a list of {field.type}"
    return f"a whole number, {field.type}" if field.type in INTEGERS else f"a value of type {field.type}"


def _decoded(field: Field, value: object, at: str) -> bytes:
    decode = urlsafe_b64decode if field.type == "uuid" else b64decode
    try:
        data = decode(value + "=" * (-len(value) % 4)) if isinstance(value, str) else None
    except (NotBase64, ValueError):
        data = None
    if data is None or (field.type == "uuid" and len(data) != UUID_BYTES):
        raise invalid_field(at, f"{field.type} in base64, as in the answer of GET …/requests")
    return data


def _indexes(value: object, path: str) -> tuple[int, ...]:
    field = f"do.edit.{path}.order"
    if not isinstance(value, list) or not value:
        raise invalid_field(field, "a list of indexes, such as [2, 0]")
    indexes = tuple(whole_number(each, field, 0, 2**31 - 1) for each in value)
    if len(set(indexes)) < len(indexes):
        raise invalid_field(field, "a list of indexes that are all different")
    return indexes
