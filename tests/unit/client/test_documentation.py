"""Tests that `help()` of the client reads as a manual, because each public class and method has a docstring."""

import inspect
from collections.abc import Iterator

import pytest

import odradek.client
import odradek.client.sync


def undocumented(module: str, name: str, value: object) -> Iterator[str]:
    """Yields the names of a public class and of its public methods and properties that have no docstring.

    The generated docstring of a named tuple or dataclass does not count, because it only repeats the fields.
    """
    if not inspect.isclass(value):
        return
    text = inspect.getdoc(value) or ""
    if not text or text.startswith(f"{name}("):
        yield f"{module}.{name}"
    for attribute in dir(value):
        found = inspect.getattr_static(value, attribute)
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if attribute.startswith("_") or not inspect.isfunction(found):
            continue
        if found.__module__.startswith("odradek") and not inspect.getdoc(getattr(value, attribute, found)):
            yield f"{module}.{name}.{attribute}"


@pytest.mark.parametrize("module", [odradek.client, odradek.client.sync])
def test_each_public_class_and_method_has_a_docstring(module: object) -> None:
    name = getattr(module, "__name__")  # noqa: B009
    public = {each: getattr(module, each) for each in getattr(module, "__all__")}  # noqa: B009
    assert public
    assert [missing for each, value in public.items() for missing in undocumented(name, each, value)] == []
