"""Tests that the guides' code blocks work when a reader pastes them.

tests/support/guides.py explains the meaning of each block's language. tests/spark runs docs/using-spark.md.
"""

import ast
import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from odradek.testing.sync import Odradek
from tests.support.guides import (
    LANGUAGES,
    Block,
    blocks,
    can_have_a_network,
    check_output,
    installed_by,
    is_part_of_a_file,
    play,
)
from tests.support.oracle import REPOSITORY
from tests.support.postgresql import PostgresqlProcess, why_not

PLAYED = {
    f"docs/{name}.md": blocks(f"docs/{name}.md") for name in ("testing", "judge", "fixtures", "dual-write", "seed")
}
PAGES = {**PLAYED, "docs/using-spark.md": blocks("docs/using-spark.md")}
TIMEOUT_S = 240


def place(block: Block) -> str:
    return block.place


def of_language(*languages: str) -> list[Block]:
    return [block for page in PAGES.values() for block in page if block.language in languages]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """Yields the socket directory of a PostgreSQL server, which clients find through PGHOST."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with PostgresqlProcess(is_synced=False) as server:
        yield server.conninfo.split()[0].removeprefix("host=")


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.skipif(not can_have_a_network(), reason="no network of its own for a guide: unshare --net is not allowed")
@pytest.mark.parametrize("page", PLAYED)
def test_a_reader_can_paste_the_page_from_top_to_bottom(
    tmp_path: Path, page: str, request: pytest.FixtureRequest
) -> None:
    environment = {}
    if page == "docs/dual-write.md":
        environment = {"PGHOST": request.getfixturevalue("postgresql"), "PGUSER": "postgres"}
    printed = play(PLAYED[page], tmp_path, timeout_s=TIMEOUT_S, **environment)
    check_output(PLAYED[page], printed)


@pytest.mark.parametrize("page", PAGES)
def test_each_code_block_names_its_language(page: str) -> None:
    """Indented code blocks are not allowed, because they have no language and could not be run."""
    assert {block.place for block in PAGES[page] if block.language not in LANGUAGES} == set()
    fenced = re.sub(
        r"^```.*?^```$", "", (REPOSITORY / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    assert re.findall(r"\n\n(    .+)", fenced) == []


@pytest.mark.parametrize("block", of_language("java", "go", "js", "rust"), ids=place)
def test_a_block_of_another_language_is_a_part_of_an_example(block: Block) -> None:
    assert is_part_of_a_file(block)


@pytest.mark.parametrize("block", of_language("python"), ids=place)
def test_a_block_of_python_is_a_program_or_a_part_of_a_file(block: Block) -> None:
    """A block that shows part of a file must be identical to that part, because only the file is run."""
    if not is_part_of_a_file(block):
        compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", of_language("yaml"), ids=place)
def test_a_workflow_of_github_is_a_file_of_the_examples(block: Block) -> None:
    assert "script" in str(yaml.safe_load(block.text)) or is_part_of_a_file(block)


@pytest.mark.parametrize("block", of_language("xml"), ids=place)
def test_a_block_of_xml_is_well_formed(block: Block) -> None:
    ElementTree.fromstring(f"<project>{block.text}</project>")


@pytest.mark.parametrize("block", of_language("sh"), ids=place)
def test_the_libraries_that_a_page_installs_are_enough_to_run_it(block: Block) -> None:
    """The libraries that the block installs must be installed in the test environment, because other tests run the
    guide's programs here."""
    for name in installed_by(block):
        assert distribution(name).version


def test_an_install_line_names_each_library_that_the_programs_of_its_page_import() -> None:
    libraries = {"confluent_kafka": "confluent-kafka", "pytest": "pytest", "pyspark": "odradek", "psycopg": "odradek"}
    for page, found in PAGES.items():
        installed = {name for block in found if block.language == "sh" for name in installed_by(block)}
        programs = "\n".join(
            block.text for block in found if block.language == "python" and not is_part_of_a_file(block)
        )
        imported = set(re.findall(r"^(?:from|import) (\w+)", programs, re.MULTILINE))
        assert {libraries[name] for name in imported & libraries.keys()} | {"odradek"} <= installed, page


def test_each_json_of_the_testing_page_is_accepted() -> None:
    """Each block is a rule, or has the fields of a new cluster."""
    with Odradek.start() as odradek, odradek.cluster() as kafka:
        for block in of_language("json"):
            fields = json.loads(block.text)
            if "do" in fields:
                kafka.fault({**fields, "unused": "ok"})
            else:
                made = odradek.call("POST", "/clusters", fields)[1]
                assert len(made["listeners"]) == len(fields["listeners"])
