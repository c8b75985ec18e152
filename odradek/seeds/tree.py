"""Parses a seed into a tree. Each node has its field's path and, if the seed is text, its line.

JSON is parsed here, because Python's own parser does not report the lines of valid values. YAML requires PyYAML, which
`odradek[yaml]` installs.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.seeds.plan import Place, SeedError

if TYPE_CHECKING:
    import yaml

MAX_DEPTH: Final = 50
# Maximum number of values that a document's aliases can expand to. Without this limit, a kilobyte of aliases to aliases
# could expand to billions of values.
MAX_ALIASED: Final = 100_000
SCALAR_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_SPACE: Final = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document. The names in mappings are text, even if YAML would parse them as numbers."""

    place: Place
    value: str | int | float | bool | list[Node] | dict[str, Node] | None

    def plain(self) -> object:
        """Returns the value without places, as `json.loads` would return it."""
        if isinstance(self.value, list):
            return [each.plain() for each in self.value]
        if isinstance(self.value, dict):
            return {name: each.plain() for name, each in self.value.items()}
        return self.value


def read_value(value: object, place: Place, depth: int = MAX_DEPTH) -> Node:
    """Converts a value returned by `json.loads` to a tree. Raises SeedError."""
    if depth == 0:
        raise _too_deep(place)
    if isinstance(value, dict):
        return Node(place, {name: read_value(each, place.below(name), depth - 1) for name, each in value.items()})
    if isinstance(value, list):
        return Node(place, [read_value(each, place.at(index, 0), depth - 1) for index, each in enumerate(value)])
    assert value is None or isinstance(value, str | int | float)
    return Node(place, value)


def read_json(text: str, root: Place) -> Node:
    """Parses JSON. Raises SeedError.

    root  the document's place
    """
    return _Json(text, root).document()


def read_yaml(text: str, root: Place) -> Node:
    """Parses YAML. Raises SeedError if the text is invalid or PyYAML is not installed.

    root  the document's place
    """
    try:
        import yaml  # installed by odradek[yaml]
    except ModuleNotFoundError:
        raise root.error("YAML needs PyYAML: pip install 'odradek[yaml]', or write JSON") from None
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # libyaml is eight times as fast
        try:
            return _Yaml(loader, root).document()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise _at(root, line).error(f"this is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:  # libyaml cannot encode half of a surrogate pair
        raise root.error(f"this is not YAML: {' '.join(str(error).split())}") from None


def _at(root: Place, line: int) -> Place:
    return Place(root.source, line, root.field)


def _too_deep(place: Place) -> SeedError:
    return place.error(f"{place.subject} is nested more than {MAX_DEPTH} levels deep")


class _Json:
    def __init__(self, text: str, root: Place) -> None:
        self._text = text
        self._root = root
        self._line_ends = [found.start() for found in re.finditer("\n", text)]
        self._scalars = json.JSONDecoder(parse_constant=self._constant)

    def document(self) -> Node:
        node, at = self._value(self._skip(0), _at(self._root, 1), MAX_DEPTH)
        at = self._skip(at)
        if at != len(self._text):
            raise self._error(at, "nothing may follow the document")
        return node

    def _value(self, at: int, place: Place, depth: int) -> tuple[Node, int]:
        if depth == 0:
            raise _too_deep(place)
        opening = self._text[at : at + 1]
        if opening == "{":
            return self._mapping(at + 1, place, depth)
        if opening == "[":
            return self._list(at + 1, place, depth)
        value, end = self._scalar(at)
        return Node(place, value), end

    def _mapping(self, at: int, place: Place, depth: int) -> tuple[Node, int]:
        found: dict[str, Node] = {}
        at = self._skip(at)
        if self._text[at : at + 1] == "}":
            return Node(place, found), at + 1
        while True:
            at = self._skip(at)
            line = self._line(at)
            name, end = self._scalar(at)
            if not isinstance(name, str):
                raise self._error(at, "the name of a field must be a string in double quotes")
            if name in found:
                raise place.below(name, line).error("the field is given twice")
            at = self._skip(end)
            if self._text[at : at + 1] != ":":
                raise self._error(at, "a colon is missing")
            found[name], at = self._value(self._skip(at + 1), place.below(name, line), depth - 1)
            at = self._skip(at)
            end_of_item = self._text[at : at + 1]
            at += 1
            if end_of_item == "}":
                return Node(place, found), at
            if end_of_item != ",":
                raise self._error(at - 1, "a comma or a closing brace is missing")

    def _list(self, at: int, place: Place, depth: int) -> tuple[Node, int]:
        found: list[Node] = []
        at = self._skip(at)
        if self._text[at : at + 1] == "]":
            return Node(place, found), at + 1
        while True:
            at = self._skip(at)
            node, at = self._value(at, place.at(len(found), self._line(at)), depth - 1)
            found.append(node)
            at = self._skip(at)
            end_of_item = self._text[at : at + 1]
            at += 1
            if end_of_item == "]":
                return Node(place, found), at
            if end_of_item != ",":
                raise self._error(at - 1, "a comma or a closing bracket is missing")

    def _scalar(self, at: int) -> tuple[str | int | float | bool | None, int]:
        if self._text[at : at + 1] in ("{", "["):
            raise self._error(at, "the name of a field must be a string in double quotes")
        try:
            value, end = self._scalars.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            raise self._error(error.pos, f"this is not JSON: {error.msg}") from None
        except ValueError as error:
            raise self._error(at, str(error)) from None
        assert value is None or isinstance(value, str | int | float)
        return value, end

    def _constant(self, name: str) -> object:
        raise ValueError(f"{name} is not JSON")

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()

    def _line(self, at: int) -> int:
        return bisect_left(self._line_ends, at) + 1

    def _error(self, at: int, reason: str) -> SeedError:
        return _at(self._root, self._line(at)).error(reason)


class _Yaml:
    """Builds the tree from the parser's events. PyYAML's own tree is not used, because building it overflows the stack
    and kills the process if a document contains many thousands of nested lists. PyYAML's tree also lacks the lines of
    aliases."""

    def __init__(self, loader: yaml.SafeLoader, root: Place) -> None:
        self._loader = loader
        self._root = root
        self._anchors: dict[str, Node | None] = {}  # None while the parser is still inside the value
        self._left = MAX_ALIASED

    def document(self) -> Node:
        import yaml

        self._loader.get_event()  # the start of the stream
        if isinstance(self._loader.get_event(), yaml.StreamEndEvent):
            raise _at(self._root, 1).error("the document is empty")
        event = self._loader.get_event()
        node = self._node(event, self._place(event), MAX_DEPTH)
        self._loader.get_event()  # the end of the document
        event = self._loader.get_event()
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._place(event).error("nothing may follow the document")
        return node

    def _node(self, event: yaml.Event, place: Place, depth: int) -> Node:
        import yaml

        if depth == 0:
            raise _too_deep(place)
        if isinstance(event, yaml.AliasEvent):
            return self._copied(self._anchored(event), place, depth, place)
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.SequenceStartEvent):
            node = Node(place, self._list(place, depth))
        elif isinstance(event, yaml.MappingStartEvent):
            node = Node(place, self._mapping(place, depth))
        else:
            assert isinstance(event, yaml.ScalarEvent)
            node = Node(place, self._scalar(event, place))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _list(self, place: Place, depth: int) -> list[Node]:
        import yaml

        rows: list[Node] = []
        while not isinstance(event := self._loader.get_event(), yaml.SequenceEndEvent):
            rows.append(self._node(event, place.at(len(rows), self._place(event).line), depth - 1))
        return rows

    def _mapping(self, place: Place, depth: int) -> dict[str, Node]:
        import yaml

        fields: dict[str, Node] = {}
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            line = self._place(event).line
            if not isinstance(event, yaml.ScalarEvent):
                raise _at(place, line).error("the name of a field must be a string")
            name = event.value
            below = place.below(name, line)
            if name in fields:
                raise below.error("the field is given twice")
            if event.anchor is not None:
                self._anchors[event.anchor] = Node(below, self._scalar(event, below))
            fields[name] = self._node(self._loader.get_event(), below, depth - 1)
        return fields

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> str | int | float | bool | None:
        import yaml

        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in SCALAR_TAGS:
            return str(event.value)  # dates and times also remain text
        try:
            value = self._loader.construct_object(yaml.ScalarNode(tag, event.value, event.start_mark))
        except ValueError as error:
            raise place.error(str(error)) from None
        except LookupError:  # PyYAML does not check that the value fits a tag such as !!bool in the document
            raise place.error(f"{event.value!r} does not fit the tag !!{tag.rpartition(':')[2]}") from None
        assert value is None or isinstance(value, int | float)
        return value

    def _anchored(self, event: yaml.AliasEvent) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise self._place(event).error(f"no value before this line has the anchor &{event.anchor}")
        return node

    def _copied(self, node: Node, place: Place, depth: int, alias: Place) -> Node:
        """Returns a copy of an anchor's value for an alias. The values inside it keep their lines.

        alias  the alias's place, for error messages
        """
        self._left -= 1
        if self._left < 0:
            raise alias.error(f"the aliases of the document expand to more than {MAX_ALIASED:,} values")
        if depth == 0:
            raise _too_deep(place)
        value = node.value
        if isinstance(value, list):
            rows = enumerate(value)
            value = [self._copied(each, place.at(at, each.place.line), depth - 1, alias) for at, each in rows]
        elif isinstance(value, dict):
            items = value.items()
            value = {
                name: self._copied(each, place.below(name, each.place.line), depth - 1, alias) for name, each in items
            }
        return Node(place, value)

    def _place(self, event: yaml.Event) -> Place:
        return _at(self._root, event.start_mark.line + 1)
