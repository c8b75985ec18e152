"""Generates the constructors of dataclasses for mypyc.

mypyc keeps the fields of a dataclass in a C struct, but leaves the constructor to `dataclasses`, which creates an
interpreted one at run time. That constructor is several times slower, and the compiled code must then assume that any
field may be unset when it is read.
"""

from __future__ import annotations

import ast
import re

HAS_NONE = re.compile(r"\bNone\b|\bobject\b|\bAny\b")


def with_constructors(source: str) -> str:
    """Returns the source with an `__init__` for each dataclass whose only options are `slots` and `frozen`.

    The method replaces the empty line after the class, so that line numbers in tracebacks do not change. mypyc 2.4.1
    compiles generic dataclasses to classes that cannot be imported, so they become ordinary classes with `__init__` and
    `__eq__`.
    """
    if "@dataclass(" not in source:
        return source
    lines = [*source.split("\n"), "", ""]  # The file may end with a class.
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and (options := _options(node)) and (parameters := _parameters(node)):
            assert node.end_lineno is not None
            behind = node.end_lineno
            if any(lines[behind : behind + 2]):
                continue  # There is no empty line for the methods.
            lines[behind] = _constructor(node, parameters, is_frozen="frozen" in options and not node.bases)
            if node.bases:
                lines[behind + 1] = _equality(node)
                for decorator in node.decorator_list:
                    lines[decorator.lineno - 1] = ""
    return "\n".join(lines).rstrip("\n") + "\n"


def _options(node: ast.ClassDef) -> set[str]:
    """Returns the options of the dataclass decorator.

    The result is empty if the class is not a dataclass, if it has unusual options, decorators or bases, or if it
    defines `__init__` or `__eq__`.
    """
    bases, options = [ast.unparse(base) for base in node.bases], set()
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="dataclass"), keywords=keywords):
                options = {str(each.arg) for each in keywords if ast.unparse(each.value) == "True"}
            case ast.Call(func=ast.Name(id="mypyc_attr")) if bases:
                pass  # mypyc_attr may prevent native compilation of a generic class.
            case _:
                return set()
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    is_usual = "slots" in options and options <= {"slots", "frozen"} and not methods & {"__init__", "__eq__"}
    return options if is_usual and all(base.startswith("Generic[") for base in bases) else set()


def _parameters(node: ast.ClassDef) -> list[tuple[str, str]]:
    """Returns a pair for each field: the constructor parameter with its annotation and default, and the expression to
    assign to the field.

    The result is empty if the constructor would have to do more than assign fields.
    """
    found = []
    for field in node.body:
        if isinstance(field, ast.FunctionDef) and field.name == "__post_init__":
            return []
        if not isinstance(field, ast.AnnAssign):
            continue
        name, annotation = ast.unparse(field.target), ast.unparse(field.annotation)
        if "ClassVar" in annotation:
            return []
        match field.value:
            case None:
                found.append((f"{name}: {annotation}", name))
            case ast.Call(func=ast.Name(id="field"), keywords=keywords):
                said = {str(each.arg): ast.unparse(each.value) for each in keywords}
                if not said.keys() <= {"default", "default_factory", "repr", "compare"}:
                    return []
                if (factory := said.get("default_factory")) is None:
                    default = f" = {said['default']}" if "default" in said else ""
                    found.append((f"{name}: {annotation}{default}", name))
                elif HAS_NONE.search(annotation):
                    return []
                else:
                    found.append((f"{name}: {annotation} | None = None", f"{factory}() if {name} is None else {name}"))
            case value:
                found.append((f"{name}: {annotation} = {ast.unparse(value)}", name))
    return found


def _constructor(node: ast.ClassDef, parameters: list[tuple[str, str]], *, is_frozen: bool) -> str:
    assigned = "; ".join(f"self.{parameter.partition(':')[0]} = {value}" for parameter, value in parameters)
    head = f"{_indent(node)}def __init__(self, {', '.join(parameter for parameter, _ in parameters)}) -> None: "
    return head + assigned + ("  # type: ignore[misc]" if is_frozen else "")


def _equality(node: ast.ClassDef) -> str:
    names = [ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]
    same = " and ".join(f"self.{name} == other.{name}" for name in names)
    return f"{_indent(node)}def __eq__(self, other: object) -> bool: return isinstance(other, {node.name}) and {same}"


def _indent(node: ast.ClassDef) -> str:
    return " " * (node.col_offset + 4)
