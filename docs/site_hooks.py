"""What mkdocs needs to know of this repository: the pages at its root belong to the site, and code is not in it.

Some pages are not kept in the repository but written when the site is built: `GENERATED`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from tests.support import commands_page, scenarios_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[1]
AT_THE_ROOT = {"README.md": "start.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
GENERATED = {"commands.md": commands_page.page, "scenarios.md": scenarios_page.page}
# A link to a file above docs/, from there or from a page at the root: what is left of its path once the steps upwards
# are taken off.
UPWARDS = re.compile(
    r"\[([^\]]*)\]\(((?:\.\./)+[A-Z]+\.md[^)\s]*|(?:\.\./)+\w+\.(?:toml|py)"
    r"|(?:\.\./)*(?:odradek|native|tests|examples|docker)(?:/[^)\s]*)?)\)"
)
INTO_DOCS = re.compile(r"(\]\(|src(?:set)?=\")docs/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in AT_THE_ROOT.items():
        text = INTO_DOCS.sub(r"\1", (REPOSITORY / name).read_text(encoding="utf-8"))
        for other, target in AT_THE_ROOT.items():
            text = text.replace(f"]({other}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    for name, written in GENERATED.items():
        files.append(File.generated(config, name, content=written()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    up = "../" * page.file.src_uri.count("/")

    def inside(link: re.Match[str]) -> str:
        name, _, anchor = link[2].replace("../", "").partition("#")
        if name in AT_THE_ROOT:
            return f"[{link[1]}]({up}{AT_THE_ROOT[name]}{'#' + anchor if anchor else ''})"
        return f"`{link[1].strip('`')}`"  # code is not in the site

    return UPWARDS.sub(inside, markdown)
