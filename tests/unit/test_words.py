"""Words of the product: how docstrings open, and that a class name means one thing.

A docstring opens with a verb (functions) or with a noun (classes, modules). Names that several files define are listed
with the reason; the list of those that still have several meanings only becomes shorter.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GENERATED = REPOSITORY / "odradek" / "protocol" / "messages"

OPENINGS = frozenset({"What", "Of", "As", "Those", "Who"})
MOST_OPENINGS = 84  # docstrings with one of these openings; lower it with each that is rewritten, to less than 30

# Class names that mean one thing in several files, and why each file has a class of its own.
ONE_MEANING: Mapping[str, str] = {
    **dict.fromkeys(("Admin", "Consumer", "Producer", "ShareConsumer"), "the client with asyncio, and without"),
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
            "ConsumerMember",
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
        "the same thing of the protocol on both sides of a connection: client and broker share no code but protocol",
    ),
}
# Class names that mean several things, to be renamed.
SEVERAL_MEANINGS = """
    Comparison Exchange Fate Login Member Open Rule Session Throttled Transaction Verdict
"""


@cache
def modules() -> Mapping[str, ast.Module]:
    """The hand-written files of the product, by their path."""
    paths = sorted((REPOSITORY / "odradek").rglob("*.py"))
    return {
        path.relative_to(REPOSITORY).as_posix(): ast.parse(path.read_text())
        for path in paths
        if GENERATED not in path.parents
    }


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path}: {text.splitlines()[0]}"
        for path, tree in modules().items()
        for text in docstrings(tree)
        if text.split()[0].rstrip(",.:") in OPENINGS
    ]
    assert len(found) <= MOST_OPENINGS, "\n".join(found)


def test_a_class_name_has_one_meaning() -> None:
    files: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(path)
    several = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    listed = ONE_MEANING.keys() | set(SEVERAL_MEANINGS.split())
    assert {name: paths for name, paths in several.items() if name not in listed} == {}
    assert ONE_MEANING.keys() <= several.keys(), "these are defined once by now: take them off the list"
