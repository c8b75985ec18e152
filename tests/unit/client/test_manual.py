"""Tests that the help texts of `Producer` and the other clients read as a manual. Each public method describes its
effect and names the errors that it raises."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import odradek.client
import odradek.client.sync

CLASSES = [
    getattr(module, name)
    for module in (odradek.client, odradek.client.sync)
    for name in ("Producer", "Consumer", "ShareConsumer", "Admin")
]
METHODS = [(cls, name) for cls in CLASSES for name, _ in inspect.getmembers(cls) if not name.startswith("_")]


def function(cls: type, name: str) -> Callable[..., Any] | None:
    found = inspect.getattr_static(cls, name, None)
    found = found.fget if isinstance(found, property) else found
    return inspect.unwrap(found) if inspect.isfunction(found) else None


def raised(cls: type, name: str, seen: set[str]) -> set[str]:
    """Returns the class names of the errors that a method raises, either directly or through other methods of the same
    object."""
    method = function(cls, name)
    if method is None or name in seen:
        return set()
    seen.add(name)
    found: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=error))):
                found.add(error)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=called)):
                found |= raised(cls, called, seen)
            case _:
                pass
    return found


def named(case: object) -> str:
    return f"{case.__module__}.{case.__name__}" if isinstance(case, type) else str(case)


@pytest.mark.parametrize(("cls", "name"), METHODS, ids=named)
def test_a_method_says_what_it_does_and_names_what_it_raises(cls: type, name: str) -> None:
    text = inspect.getdoc(inspect.getattr_static(cls, name)) or ""
    assert text != ""
    assert not text.startswith("See "), "a docstring that only refers to another one is no manual"
    missing = {error for error in raised(cls, name, set()) if error not in text}
    assert missing == set()


@pytest.mark.parametrize("cls", CLASSES, ids=named)
def test_a_class_shows_a_program(cls: type) -> None:
    assert "with " in (cls.__doc__ or "")


def test_the_errors_of_helpers_count() -> None:
    assert "IllegalState" in raised(odradek.client.Producer, "flush", set())
    assert {"IllegalState", "ValueError"} <= raised(odradek.client.Consumer, "getmany", set())
