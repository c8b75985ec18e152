"""Tests that the target of every reference in code, tests and docs exists, whether it is a rule, a page, a file or a
name."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.generated_pages import GENERATED, WRITTEN_FROM, page_instead

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
CODE = ("odradek", "tests", "examples")

CITATION = re.compile(r"docs/spec/[\w.-]+\.md(?:#[\w-]*)?")
CITED_PAGE = re.compile(r"docs/spec/[\w.-]+\.md")
# Matches a section cited without its page. The file must also cite the page by its path.
SECTION = re.compile(r"#(s\d+(?:-\d+)*)\b")
# Matches a file's path, relative to the root of the repository, in a page or a docstring.
FILE = re.compile(rf"(?<![\w/.-])((?:docs|{'|'.join(CODE)})/[\w/-]+\.(?:py|md|json))\b")
# Matches the end of a file's path, such as `partitions/partition.py`.
SHORT_FILE = re.compile(r"(?<![\w/.*-])((?:[\w-]+/)*[\w-]+\.(?:py|js))\b")
# Matches a module, or a name in a module, such as `odradek.broker.broker.Broker`.
DOTTED = re.compile(r"`(odradek(?:\.\w+)+)`")
# Files that are not in the repository: programs for readers to copy, and code from client projects.
ELSEWHERE = frozenset(
    {
        "enrich.py",
        "order.py",
        "orders.py",
        "shop.py",
        "test_orders.py",
        "test_shop.py",
        "src/broker/index.js",
        "net/manager.py",
    }
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
EXPLICIT_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
HEADING = re.compile(r"#+ (.*)")


def pages() -> Iterator[Path]:
    yield from sorted(REPOSITORY.glob("*.md"))
    yield from sorted(DOCS.rglob("*.md"))


def code_files() -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the anchors that can follow `#` in a link to this page."""
    return anchors_in(page.read_text())


def anchors_in(page: str) -> frozenset[str]:
    """Returns the anchors in a page's text: explicit anchors, and those that GitHub derives from headings."""
    text = without_code(page)
    found = set(EXPLICIT_ANCHOR.findall(text))
    for line in text.splitlines():
        if heading := HEADING.fullmatch(line):
            words = EXPLICIT_ANCHOR.sub("", heading[1]).strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return frozenset(found)


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def missing(target: str, page: Path) -> bool:
    """Returns whether a link in `page` leads nowhere. `target` is the link's target, relative to the page: a file,
    `#anchor`, or a file with `#anchor`."""
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return not file.exists() or (anchor != "" and anchor not in anchors(file))


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", list(pages()), ids=named)
def test_each_link_of_a_page_resolves(page: Path) -> None:
    links = LINK.findall(without_code(page.read_text()))
    relative = [link for link in links if not link.startswith(("https://", "http://"))]
    assert [link for link in relative if missing(link, page)] == []


@pytest.mark.parametrize("name", GENERATED)
def test_each_link_of_a_generated_page_resolves(name: str) -> None:
    text = GENERATED[name]()
    relative = [link for link in LINK.findall(without_code(text)) if not link.startswith(("https://", "http://"))]
    here = [link for link in relative if link.startswith("#")]
    assert [link for link in relative if link not in here and missing(link, DOCS / name)] == []
    assert [link for link in here if link[1:] not in anchors_in(text)] == []


@pytest.mark.parametrize(("code", "target"), WRITTEN_FROM.items())
def test_a_link_in_words_to_code_leads_on_the_site_to_the_page_that_is_written_from_it(code: str, target: str) -> None:
    page, _, anchor = target.partition("#")
    text = GENERATED[page]()
    assert (REPOSITORY / code).exists()
    assert not (DOCS / page).exists()
    assert not anchor or anchor in anchors_in(text)
    assert page_instead("rare states", code) == target
    assert page_instead(f"`{code}`", code) is None


def test_each_file_that_code_or_a_page_names_exists() -> None:
    named_files = {(named(file), path) for file in (*code_files(), *pages()) for path in FILE.findall(file.read_text())}
    assert sorted((file, path) for file, path in named_files if not (REPOSITORY / path).exists()) == []


def prose(file: Path) -> str:
    """Returns the text of a page, or the docstrings and comments of a code file."""
    text = file.read_text()
    if file.suffix != ".py":
        return text
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*docstrings, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def described_files() -> Iterator[Path]:
    """Yields hand-written code, and the pages that describe the current state. Excludes the changelog, the decisions
    (ADRs) and the rule book."""
    yield from (file for file in code_files() if "messages" not in file.parts)
    yield from (page for page in pages() if page.name != "CHANGELOG.md" and page.parent.name not in ("adr", "spec"))


@cache
def paths_of_files() -> frozenset[str]:
    """Returns the path of each file in the repository, and each end of the path that starts with a folder or is the
    file's name."""
    roots = (*CODE, "pyspark_odradek", "bench", "docs", "docker", "native", ".ci")
    found = [named(file) for root in roots for file in (REPOSITORY / root).rglob("*") if file.suffix in (".py", ".js")]
    found += [path.name for path in REPOSITORY.glob("*.py")]
    return frozenset("/".join(path.split("/")[start:]) for path in found for start in range(path.count("/") + 1))


def names_nothing(dotted: str) -> bool:
    """Returns whether a dotted path that starts with `odradek` names a missing module, or a name that its module does
    not have.

    Names of settings also start with `odradek`. They are not paths and are not reported.
    """
    place, rest = REPOSITORY, dotted.split(".")
    while rest and (place / rest[0]).is_dir():
        place, rest = place / rest[0], rest[1:]
    if rest and (place / f"{rest[0]}.py").exists():
        place, rest = place / f"{rest[0]}.py", rest[1:]
    elif place == REPOSITORY / "odradek":
        return False
    source = place if place.is_file() else place / "__init__.py"
    text = source.read_text() if source.exists() else ""
    return bool(rest) and not re.search(rf"\b{rest[0]}\b", text)


def test_each_file_and_class_that_prose_names_exists() -> None:
    nowhere = []
    for file in described_files():
        text = prose(file)
        nowhere += [f"{named(file)}: {path}" for path in {*SHORT_FILE.findall(text)} - paths_of_files() - ELSEWHERE]
        nowhere += [f"{named(file)}: {dotted}" for dotted in {*DOTTED.findall(text)} if names_nothing(dotted)]
    assert sorted(nowhere) == []


@pytest.mark.parametrize(
    "dotted", ["odradek.broker.broker.Brocker", "odradek.broker.no_module", "odradek.client.Klient"]
)
def test_a_dotted_name_of_nothing_is_found(dotted: str) -> None:
    assert names_nothing(dotted)


@pytest.mark.parametrize("dotted", ["odradek.broker.broker.Broker", "odradek.client", "odradek.control.enable"])
def test_a_dotted_name_of_something_or_of_a_setting_is_not_reported(dotted: str) -> None:
    assert not names_nothing(dotted)


def test_each_cited_section_of_the_rule_book_exists() -> None:
    cited = {
        (named(file), citation) for file in (*code_files(), *pages()) for citation in CITATION.findall(file.read_text())
    }
    root = REPOSITORY / "README.md"
    assert sorted((file, citation) for file, citation in cited if missing(citation, root)) == []


def test_a_section_cited_without_a_path_is_one_of_a_page_that_the_file_cites() -> None:
    nowhere = []
    for file in code_files():
        text = file.read_text()
        cited = [REPOSITORY / page for page in set(CITED_PAGE.findall(text))]
        known = frozenset().union(*(anchors(page) for page in cited if page.exists()))
        nowhere += [f"{named(file)}: #{section}" for section in SECTION.findall(text) if section not in known]
    assert nowhere == []


def test_rules_are_cited_by_their_place_in_the_repository() -> None:
    by_title = [named(file) for file in (*code_files(), *pages()) if re.search(r"-behaviour \d", file.read_text())]
    assert by_title == [], "cite docs/spec/<page>.md#s<section>"


def test_no_page_for_users_has_the_name_of_a_page_of_the_rule_book() -> None:
    rules = {page.stem for page in (DOCS / "spec").glob("*.md")} - {"README"}
    assert {page.stem for page in pages() if page.parent.name != "spec"} & rules == set()


def test_each_numbered_section_of_the_rule_book_has_the_anchor_of_its_number() -> None:
    for page in sorted((DOCS / "spec").glob("*.md")):
        for number in re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", without_code(page.read_text()), flags=re.MULTILINE):
            assert f"s{number.replace('.', '-')}" in anchors(page), f"{named(page)} {number}"


@pytest.mark.parametrize(
    "target", ["no-such-page.md", "transactions.md#no-section", "#no-such-heading", "../groups.md#no-heading"]
)
def test_a_broken_link_is_found(target: str) -> None:
    assert missing(target, DOCS / "spec" / "README.md")
