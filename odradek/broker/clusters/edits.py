"""Edits of answers: what a rule sets, removes, repeats or puts in another order, by the path of a field. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.broker.clusters.problems import bad, mapping, only, unknown, whole
from odradek.protocol.messages import response_class
from odradek.protocol.schema import load
from odradek.protocol.struct import Struct

if TYPE_CHECKING:
    from odradek.protocol.api_keys import ApiKey
    from odradek.protocol.schema import Field, Schema

OF_ARRAYS: Final = frozenset({"reverse", "order"})
OF_ELEMENTS: Final = frozenset({"remove", "duplicate"})
EDITS: Final = (
    'a value, {"remove": true}, {"duplicate": true}, {"reverse": true}, {"order": [2, 0]} or {"corrupt": true}'
)


@dataclass(frozen=True, slots=True)
class Edit:
    """Sets a field of the answer; `path` leads through structs by name and through arrays by index, `*` for all.

    how  `set`, to a value of which each answer gets a copy; `corrupt` of bytes, whose last bit turns over; of an array
         `remove` or `duplicate` of its element, `reverse`, or `order`, whose `value` holds the indexes of elements as
         they are to come; those that it does not name follow
    """

    path: tuple[str | int, ...]
    value: object
    how: str = "set"

    def apply(self, answer: Struct) -> None:
        """Raises ValueError where the path leads to no field of this answer."""
        places: list[object] = [answer]
        for step in self.path if self.how in OF_ARRAYS else self.path[:-1]:
            places = [each for place in places for each in _below(place, step)]
        last = self.path[-1]
        for place in places:
            if self.how not in ("set", "corrupt"):
                self._reshape(place, last)
                continue
            if not isinstance(place, Struct) or not isinstance(last, str) or last not in type(place).__slots__:
                raise ValueError(f"{type(place).__name__} has no field {last}")
            value = deepcopy(self.value) if self.how == "set" else _corrupted(getattr(place, last))
            setattr(place, last, value)

    def _reshape(self, array: object, index: str | int) -> None:
        if not isinstance(array, list):
            raise ValueError(f"{type(array).__name__} is no array")
        if self.how == "reverse":
            array.reverse()
        elif isinstance(self.value, tuple):  # of `order`
            first = [each for each in self.value if each < len(array)]
            array[:] = [array[each] for each in [*first, *(each for each in range(len(array)) if each not in first)]]
        elif self.how == "remove" and index == "*":
            array.clear()
        elif isinstance(index, int) and index < len(array):
            if self.how == "remove":
                del array[index]
            else:
                array.insert(index, array[index])
        elif self.how == "duplicate" and index == "*":
            array[:] = [each for each in array for _ in range(2)]
        else:
            raise ValueError(f"there is no element {index} of {len(array)}")


def _corrupted(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(f"{type(value).__name__} is not bytes")
    return b"".join((value[:-1], bytes(each ^ 1 for each in value[-1:])))


def _below(place: object, step: str | int) -> list[object]:
    if isinstance(place, list):
        return list(place) if step == "*" else [place[step]] if isinstance(step, int) and step < len(place) else []
    return [getattr(place, step)] if isinstance(step, str) and hasattr(place, step) else []


MOST_DIGITS = 18  # of an index; a number of thousands of digits is none for Python


def parse_edit(api: ApiKey, path: str, value: object) -> Edit:
    """Raises Problem."""
    at = f"do.edit.{path}"
    steps = [int(each[:MOST_DIGITS]) if each.isdecimal() else each for each in re.findall(r"\d+|\*|[A-Za-z]\w*", path)]
    how = "set"
    if isinstance(value, dict):
        if len(value) != 1 or not value.keys() <= OF_ARRAYS | OF_ELEMENTS | {"corrupt"}:
            raise bad(at, EDITS)
        ((how, order),) = value.items()
        if how != "order" and order is not True:
            raise bad(at, EDITS)
        if how == "order":
            value = _indexes(order, path)
    is_element = bool(steps) and (steps[-1] == "*" or isinstance(steps[-1], int))
    if how in OF_ELEMENTS and not is_element:
        raise bad(at, "a path to an element, as in Topics[0] or Topics[*]")
    if not steps or (how not in OF_ELEMENTS and is_element):
        raise bad(at, "a path to a field, as in Topics[0].Partitions[*].ErrorCode, and its value")
    slots = response_class(api.value).__slots__
    first = attribute_of(str(steps[0]))
    if first not in slots:
        raise unknown(at, first, slots)
    named = tuple(attribute_of(each) if isinstance(each, str) else each for each in steps)
    return Edit(named, _array(api, named, value, at) if isinstance(value, list) else value, how)


def _array(api: ApiKey, path: Sequence[str | int], elements: list[object], at: str) -> list[object]:
    schema = load(response_class(api.value).__module__.rpartition(".")[2])
    fields, field = schema.fields, None
    for step in path:
        if isinstance(step, str) and step != "*":
            known = {each.attribute: each for each in fields}
            if step not in known:
                raise unknown(at, step, known)
            field = known[step]
            fields = schema.structs.get(field.type, ())
    if field is None or not field.is_array:
        raise bad(at, "a plain value, which a field has that is no array")
    module = sys.modules[response_class(api.value).__module__]
    return [_element(schema, field, each, f"{at}[{index}]", vars(module)) for index, each in enumerate(elements)]


def _element(schema: Schema, field: Field, value: object, at: str, classes: dict[str, type[Struct]]) -> object:
    if not field.is_struct:
        if isinstance(value, dict | list):
            raise bad(at, "a plain value")
        return value
    told = mapping(value, at)
    known = {each.name: each for each in schema.structs[field.type]}
    only(told, known.keys(), at)
    inner: dict[str, object] = {}
    for name, each in told.items():
        if isinstance(each, dict | list):
            raise bad(f"{at}.{name}", "a plain value: what is below it can be set by an edit of its own")
        inner[known[name].attribute] = each
    return classes[field.type](**inner)


def _indexes(value: object, path: str) -> tuple[int, ...]:
    field = f"do.edit.{path}.order"
    if not isinstance(value, list) or not value:
        raise bad(field, "a list of indexes, as in [2, 0]")
    indexes = tuple(whole(each, field, 0, 2**31 - 1) for each in value)
    if len(set(indexes)) < len(indexes):
        raise bad(field, "a list of indexes, each of them once")
    return indexes


def attribute_of(name: str) -> str:
    """MemberEpoch → member_epoch, as the message classes spell it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
