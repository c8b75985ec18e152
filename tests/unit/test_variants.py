"""Tests the compiled variant (docs/variants.md): its list of modules, a test run's choice of the variant, and
ODRADEK_PURE, which overrides the installed variant."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

import odradek
from odradek.protocol.variant import COMPILED, PURE, variant
from tests.support.oracle import REPOSITORY


def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("odradek_setup", REPOSITORY / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_requested_variant_runs() -> None:
    assert variant() == os.environ.get("ODRADEK_VARIANT", PURE)


def test_every_module_of_compiled_toml_is_of_the_same_variant() -> None:
    paths = build().modules()
    assert "odradek/broker/network/connection.py" in paths
    assert "odradek/broker/network/__init__.py" not in paths
    origins = [spec.origin for path in paths if (spec := importlib.util.find_spec(path[:-3].replace("/", ".")))]
    suffixes = tuple(EXTENSION_SUFFIXES) if variant() == COMPILED else (".py",)
    assert len(origins) == len(paths)
    assert [origin for origin in origins if not (origin or "").endswith(suffixes)] == []


def test_types_of_the_fields_of_compiled_classes_are_there_at_run_time() -> None:
    """Checks that the types of fields exist at run time. When mypyc creates a class, it looks up even types that are
    named only in an annotation, but it does not find `object`."""
    assert [found for path in build().modules() for found in unknown_types(path)] == []


def test_no_attribute_that_was_set_to_none_is_read_again_after_a_call() -> None:
    """Checks that the code avoids a bug in mypyc, which assumes that the attribute is still None and raises TypeError
    if the call has changed the attribute."""
    sources = [(path, (REPOSITORY / path).read_text()) for path in build().modules()]
    assert [f"{path}:{found}" for path, source in sources for found in believed_to_be_none(source)] == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("kept, self._x = self._x, None\n    self.go()\n    return self._x is None", ["4 self._x"]),
        ("self._x = None\n    self.go()\n    if self._x: pass", ["4 self._x"]),
        ("self._x = None\n    if self._x: pass\n    self.go()", []),
        ("self._x = None\n    self._x = self.go()\n    return self._x", []),
        ("self.drop_x()\n    self.go()\n    return self._x", []),
    ],
)
def test_an_attribute_that_mypyc_believes_to_be_none_is_found(body: str, found: list[str]) -> None:
    assert list(believed_to_be_none(f"def f(self):\n    {body}\n")) == found


def test_each_name_of_an_error_has_one_type() -> None:
    """Checks that the code respects a limitation of mypyc, which gives the name in `except … as error` its first type
    throughout the function."""
    sources = [(path, (REPOSITORY / path).read_text()) for path in build().modules()]
    assert [f"{path}:{found}" for path, source in sources for found in errors_of_two_types(source)] == []


def errors_of_two_types(source: str) -> Iterator[str]:
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            types: dict[str, str] = {}
            inner = [each for each in ast.walk(function) if isinstance(each, ast.FunctionDef) and each is not function]
            not_its_own = {id(node) for each in inner for node in ast.walk(each)}
            for node in (node for node in ast.walk(function) if id(node) not in not_its_own):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                    type_name = ast.unparse(node.type)
                    if types.setdefault(node.name, type_name) != type_name:
                        yield f"{node.lineno} {node.name}"


def test_no_function_refers_to_itself() -> None:
    """Checks that no function leaves garbage. In mypyc, a nested function refers to itself if it contains another
    function or if a sibling names it. After each call, the garbage collector, which rarely runs, has to free the
    function and everything that it refers to."""
    sources = [(path, (REPOSITORY / path).read_text()) for path in build().modules()]
    assert [f"{path}:{found}" for path, source in sources for found in left_to_the_collector(source)] == []


def left_to_the_collector(source: str) -> Iterator[str]:
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    module = ast.parse(source)
    imports = [each for node in module.body if isinstance(node, ast.ImportFrom) for each in node.names]
    # If the outer function names a module-level function first, that function also counts as a sibling.
    unseen = {each.asname or each.name for each in imports} | {
        each.name for each in module.body if isinstance(each, functions)
    }
    for function in (node for node in ast.walk(module) if isinstance(node, functions)):
        nested = [node for node in ast.walk(function) if isinstance(node, functions) and node is not function]
        if not nested:
            continue
        within = {id(node) for each in nested for node in ast.walk(each)}
        own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and id(node) not in within}
        earlier = {each.id for each in ast.walk(module) if isinstance(each, ast.Name) and each.lineno < function.lineno}
        names = {each.name for each in nested} | {name for name in own & unseen - earlier if name.islower()}
        for each in nested:
            inner = [node for node in ast.walk(each) if node is not each]
            if any(isinstance(node, functions | ast.Lambda | ast.GeneratorExp) for node in inner) or any(
                isinstance(node, ast.Name) and node.id in names for node in inner
            ):
                yield f"{each.lineno} {each.name}"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("def g(): return f", []),
        ("def g(): return g", ["2 g"]),
        ("def g(): return 1\n    def h(): return g()", ["3 h"]),
        ("def g(): return lambda: 1", ["2 g"]),
        ("def g(): return any(x for x in y)", ["2 g"]),
        ("def g(): return [x for x in y]\n    return lambda: g()", []),
    ],
)
def test_a_function_that_refers_to_itself_is_found(body: str, found: list[str]) -> None:
    assert list(left_to_the_collector(f"def f(y):\n    {body}\n")) == found


def believed_to_be_none(source: str) -> Iterator[str]:
    """Yields the line and the attribute of each read that follows `self.x = None` and then a call, in line order."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = [node for node in ast.walk(function) if isinstance(node, ast.expr | ast.stmt)]
            # by attribute: whether there has been a call since the attribute was set to None
            unset: dict[str, bool] = {}
            for node in sorted(nodes, key=lambda node: (node.end_lineno, node.end_col_offset, node.col_offset)):
                if isinstance(node, ast.Call | ast.Await):
                    unset = dict.fromkeys(unset, True)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    if unset.pop(ast.unparse(node), False):
                        yield f"{node.lineno} {ast.unparse(node)}"
                elif isinstance(node, ast.Assign):
                    (target,) = node.targets[-1:]
                    targets = target.elts if isinstance(target, ast.Tuple) else [target]
                    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(targets)
                    for each, value in zip(targets, values, strict=False):
                        unset.pop(ast.unparse(each), None)
                        if isinstance(each, ast.Attribute) and isinstance(value, ast.Constant) and value.value is None:
                            unset[ast.unparse(each)] = False


def unknown_types(path: str) -> Iterator[str]:
    tree = ast.parse((REPOSITORY / path).read_text())
    unknown = {"object"}
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            imports = [each for each in statement.body if isinstance(each, ast.ImportFrom)]
            unknown.update(alias.asname or alias.name for each in imports for alias in each.names)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for index, node in enumerate(classes):
        if is_of_fields(node):
            unknown_yet = unknown | {each.name for each in classes[index + 1 :]}
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation).partition("[")[0] in unknown_yet:
                    yield f"{path}: {node.name}.{ast.unparse(field)}"


def is_of_fields(node: ast.ClassDef) -> bool:
    made_by = [ast.unparse(each) for each in (*node.decorator_list, *node.bases)]
    return any(each.startswith(("dataclass", "NamedTuple")) for each in made_by)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Returns the folder of a copy of the sources. Beside one module, the copy has an extension module that no Python
    can load."""
    source = Path(odradek.__file__).parent
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "schemas", "messages")
    shutil.copytree(source, tmp_path / "odradek", ignore=ignored)
    (tmp_path / "odradek" / "protocol" / f"errors{EXTENSION_SUFFIXES[0]}").write_bytes(b"compiled")
    return tmp_path


def run(installed: Path, pure: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "ODRADEK_PURE": pure}
    words = [sys.executable, "-m", "odradek", "version"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_compiled_modules_come_before_their_sources(installed: Path) -> None:
    assert "ImportError" in run(installed, "").stderr
    assert "ImportError" in run(installed, "0").stderr


def test_odradek_pure_runs_the_sources(installed: Path) -> None:
    assert run(installed, "1").stdout == f"odradek {odradek.__version__} (pure Python)\n"


def test_the_reason_in_odradek_pure_is_printed(installed: Path) -> None:
    output = run(installed, "the sources have changed").stdout
    assert output == f"odradek {odradek.__version__} (pure Python: the sources have changed)\n"
