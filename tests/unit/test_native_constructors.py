"""Tests that the constructors compiled by mypyc are the ones that `dataclasses` would generate at run time."""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from native.constructors import with_constructors
from odradek.broker.transactions.entry import TransactionTombstone
from odradek.protocol.variant import COMPILED, variant
from tests.support.oracle import REPOSITORY
from tests.unit.test_variants import build

START = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar
R = TypeVar("R")
"""
POINT = '''
@dataclass(slots=True)
class Point:
    """Where."""

    x: int  # m
    y: int | None = None
    names: tuple[str, ...] = ("a", "b")
    seen: list[int] = field(default_factory=list)
    size: int = field(default=1, repr=False)

    @property
    def is_flat(self) -> bool:
        return self.y is None


def after() -> int:
    return Point(1).x
'''
FROZEN = POINT.replace("slots=True", "frozen=True, slots=True")
GENERIC = POINT.replace("class Point", "class Point(Generic[R])")


def names_in(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "<source>", "exec"), names)
    return names


def methods(source: str, name: str) -> dict[str, ast.FunctionDef]:
    found = next(each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ClassDef) and each.name == name)
    return {each.name: each for each in found.body if isinstance(each, ast.FunctionDef)}


def written_constructors() -> Iterator[Any]:
    for path in build().modules():
        written = with_constructors((REPOSITORY / path).read_text())
        if written != (REPOSITORY / path).read_text():
            module = import_module(path.removesuffix(".py").replace("/", "."))
            for node in ast.parse(written).body:
                if isinstance(node, ast.ClassDef) and (made := methods(written, node.name).get("__init__")):
                    is_ours = made.lineno == made.end_lineno and made.body[0].lineno == made.lineno
                    if is_ours and dataclasses.is_dataclass(getattr(module, node.name)):
                        yield pytest.param(module, node.name, made, id=f"{path.removeprefix('odradek/')} {node.name}")


WRITTEN = list(written_constructors())


@pytest.mark.parametrize(("module", "name", "made"), WRITTEN)
def test_a_written_constructor_has_the_signature_of_the_generated_one(module: Any, name: str, made: Any) -> None:
    fields = dataclasses.fields(getattr(module, name))
    names = dict(vars(module))
    exec(compile("from __future__ import annotations\n" + ast.unparse(made), name, "exec"), names)
    parameters = list(inspect.signature(names["__init__"]).parameters.values())[1:]
    assert [each.name for each in parameters] == [field.name for field in fields]
    assert {each.kind for each in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    for field, parameter in zip(fields, parameters, strict=True):
        if field.default_factory is not dataclasses.MISSING:
            assert parameter.default is None
        elif field.default is dataclasses.MISSING:
            assert parameter.default is inspect.Parameter.empty
        else:
            assert parameter.default == field.default


@pytest.mark.parametrize(("module", "name", "made"), WRITTEN)
def test_the_compiled_variant_has_native_constructors(module: Any, name: str, made: Any) -> None:
    is_interpreted = isinstance(getattr(module, name).__init__, FunctionType)
    assert is_interpreted == (variant() != COMPILED)


@pytest.mark.parametrize("source", [POINT, GENERIC], ids=["plain", "generic"])
def test_a_written_constructor_creates_the_same_object_as_the_generated_one(source: str) -> None:
    written = with_constructors(START + source)
    assert "__init__" in methods(written, "Point")
    for names in (names_in(START + source), names_in(written)):
        point = names["Point"]
        one, other = point(1, 2, ("c",), [3]), point(x=1)
        assert (one.x, one.y, one.names, one.seen, one.size, one.is_flat) == (1, 2, ("c",), [3], 1, False)
        assert (other.x, other.y, other.names, other.seen, other.is_flat) == (1, None, ("a", "b"), [], True)
        assert other.seen is not point(1).seen
        assert one == point(1, names=("c",), y=2, seen=[3])
        assert one != other
        assert one != (1, 2, ("c",))
        with pytest.raises(TypeError):
            point()
        with pytest.raises(TypeError):
            hash(one)


# The compiled constructor assigns attributes in C. In Python, a frozen class would refuse these assignments, so the
# class is only parsed here.
def test_constructors_of_frozen_classes_are_written_too() -> None:
    assert methods(with_constructors(START + FROZEN), "Point").keys() == {"__init__", "is_flat"}


@pytest.mark.skipif(variant() != COMPILED, reason="in pure Python `dataclasses` sees to it")
def test_a_frozen_class_with_a_written_constructor_stays_frozen() -> None:
    removed = TransactionTombstone("t")
    with pytest.raises(AttributeError):
        removed.transactional_id = "u"  # type: ignore[misc]
    assert removed == TransactionTombstone("t")
    assert hash(removed) == hash(TransactionTombstone("t"))


def test_lines_keep_their_numbers() -> None:
    before, now = (START + POINT).split("\n"), with_constructors(START + POINT).split("\n")
    (written,) = [line for line, old in zip(now, before, strict=True) if line != old]
    assert written == (
        "    def __init__(self, x: int, y: int | None = None, names: tuple[str, ...] = ('a', 'b'), "
        "seen: list[int] | None = None, size: int = 1) -> None: "
        "self.x = x; self.y = y; self.names = names; self.seen = list() if seen is None else seen; self.size = size"
    )


@pytest.mark.parametrize(
    ("instead_of", "there_is"),
    [
        ("(slots=True)", ""),
        ("slots=True", "slots=True, kw_only=True"),
        ("slots=True", "slots=True, order=True"),
        ("seen: list[int]", "seen: list[int] | None"),  # None is a valid value of this field
        ("repr=False", "init=False"),
        ("x: int", "x: ClassVar[int]"),
        ("is_flat", "__post_init__"),
        ("class Point", "class Point(Exception)"),
        ("\n\n\ndef after", "\n\ndef after"),  # too few blank lines
        ("@dataclass(slots=True)", ""),
    ],
)
def test_other_classes_are_not_changed(instead_of: str, there_is: str) -> None:
    source = START + POINT.replace(instead_of, there_is)
    assert source != START + POINT
    assert with_constructors(source) == source


def test_every_source_can_be_parsed_afterwards_and_keeps_its_lines() -> None:
    for path in sorted(Path(REPOSITORY / "odradek").rglob("*.py")):
        source = path.read_text()
        written = with_constructors(source)
        ast.parse(written)
        left = [line for line in source.split("\n") if line]
        assert written.count("\n") - source.count("\n") in (0, 1, 2), path
        assert len(set(left) - set(written.split("\n"))) <= 2, path
