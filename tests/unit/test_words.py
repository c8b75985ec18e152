"""Tests that a class name has only one meaning in the product.

If several files define the same name, the table explains why each file has its own class.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GENERATED = REPOSITORY / "odradek" / "protocol" / "messages"

# Class names that have the same meaning in several files, and why each file has its own class.
ONE_MEANING: Mapping[str, str] = {
    **dict.fromkeys(
        ("Admin", "Consumer", "Producer", "ShareConsumer", "Odradek"), "the client with asyncio, and without"
    ),
    "GroupView": "what an assignor sees of a group: of consumer groups, and of streams groups",
    **dict.fromkeys(("Clock", "Cluster"), "of the tests' cluster as people import it, and within"),
    **dict.fromkeys(
        ("Outcome", "Reply", "Timer"),
        "a decision, and what its shard sends and arms: each core has its own types of them (shard.py's `OutcomeLike`)",
    ),
    **dict.fromkeys(
        (
            "Acl",
            "AclFilter",
            "AcquireMode",
            "Connection",
            "ClassicMember",
            "ConsumerMember",
            "FetchSession",
            "IsolationLevel",
            "NewTopic",
            "Node",
            "OAuthBearerExchange",
            "PlainExchange",
            "ScramExchange",
            "ShareMember",
            "ShareSession",
            "UpgradeType",
        ),
        "one thing of the protocol: client, broker, and the judge of what passes between, share no code but protocol",
    ),
}


@cache
def modules() -> Mapping[str, ast.Module]:
    """Returns the syntax trees of the product's hand-written files, keyed by path."""
    paths = sorted((REPOSITORY / "odradek").rglob("*.py"))
    return {
        path.relative_to(REPOSITORY).as_posix(): ast.parse(path.read_text())
        for path in paths
        if GENERATED not in path.parents
    }


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the node and all statements below it. Skips their expressions, which are most of a tree."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child)


def test_a_class_name_has_one_meaning() -> None:
    files: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules().items():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(path)
    several = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    assert {name: paths for name, paths in several.items() if name not in ONE_MEANING} == {}
    assert ONE_MEANING.keys() <= several.keys(), "these are defined once by now: take them off the list"
