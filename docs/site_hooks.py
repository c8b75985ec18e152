"""The hooks that mkdocs calls while it builds this repository's site.

The site includes the pages at the root of the repository, but no code. Some pages are generated when the site is built
and are not in the repository: see `GENERATED` in tests/support/generated_pages.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from tests.support.generated_pages import GENERATED, page_instead

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[1]
AT_THE_ROOT = {"README.md": "start.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
QUESTIONS = "questions.md"  # The site's page for docs/README.md. The start page is docs/index.md.
MERMAID = REPOSITORY / ".make" / "mermaid.min.js"  # downloaded by `make docs`
MERMAID_IN_SITE = "assets/mermaid.min.js"
# The factor by which the search weights a hit, keyed by the folder or name of its page. The default is 1. People search
# because they have a question about use, so rules, decisions and lists come last. The numbers are small because the
# theme gives a hit in a title a thousand times the weight of a hit in the text.
WEIGHTS = {
    "spec/": 1e-4,
    "formats/": 1e-4,
    "verdicts": 1e-4,
    "adr/": 1e-5,
    "changes.md": 1e-5,
    "scenarios.md": 1e-6,
}
WEIGHT_OF_A_GUIDE = 2.0
# Matches a link from a page of docs/, or from a page at the root, to a file outside docs/. Group 1 is the link's text.
# Group 2 is its path with any leading `../`.
UPWARDS = re.compile(
    r"\[([^\]]*)\]\(((?:\.\./)+[A-Z]+\.md[^)\s]*|(?:\.\./)+\w+\.(?:toml|py)"
    r"|(?:\.\./)*(?:odradek|native|tests|examples|docker)(?:/[^)\s]*)?)\)"
)
DIAGRAM = re.compile(r'<pre class="mermaid">.*?</pre>', re.DOTALL)
INTO_DOCS = re.compile(r"(\]\(|src(?:set)?=\")docs/")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replaces each `[FOLDER/*.md]` in the navigation with the pages in that folder, beginning with the README."""
    assert config.nav is not None
    _expand(config.nav, Path(config.docs_dir))
    return config


def _expand(entries: list[Any], docs: Path) -> None:
    for entry in entries:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            if isinstance(below, list) and isinstance(below[0], str) and below[0].endswith("/*.md"):
                pages = sorted(docs.glob(below[0]), key=lambda page: (page.name != "README.md", page.name))
                entry[title] = [page.relative_to(docs).as_posix() for page in pages]
            elif isinstance(below, list):
                _expand(below, docs)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in AT_THE_ROOT.items():
        text = INTO_DOCS.sub(r"\1", (REPOSITORY / name).read_text(encoding="utf-8"))
        for other, target in AT_THE_ROOT.items():
            text = text.replace(f"]({other}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    questions = (REPOSITORY / "docs" / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, QUESTIONS, content=questions))
    if not MERMAID.exists():
        raise PluginError(f"{MERMAID} is missing: run `make docs`, which fetches it")
    files.append(File.generated(config, MERMAID_IN_SITE, content=MERMAID.read_bytes()))
    for name, written in GENERATED.items():
        files.append(File.generated(config, name, content=written()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    up = "../" * page.file.src_uri.count("/")
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]  # the start page's cards are its navigation
    page.meta["search"] = {"boost": weight(page.file.src_uri, config.nav)}

    def inside(link: re.Match[str]) -> str:
        name, _, anchor = link[2].replace("../", "").partition("#")
        if name in AT_THE_ROOT:
            return f"[{link[1]}]({up}{AT_THE_ROOT[name]}{'#' + anchor if anchor else ''})"
        if instead := page_instead(link[1], name):
            return f"[{link[1]}]({up}{instead})"
        return f"`{link[1].strip('`')}`"  # code is not part of the site

    if not up:
        markdown = markdown.replace("](README.md", f"]({QUESTIONS}")
    return UPWARDS.sub(inside, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Puts each diagram into a scrollable element, so that it can be read on a phone."""
    return DIAGRAM.sub(r'<div class="scrolled">\g<0></div>', html)


def weight(page: str, nav: list[Any] | None) -> float:
    """Returns the factor by which the search weights a hit on this page."""
    for start, counts in WEIGHTS.items():
        if page.startswith(start):
            return counts
    guides = next(entry["Guides"] for entry in nav or () if "Guides" in entry)
    return WEIGHT_OF_A_GUIDE if f"'{page}'" in repr(guides) else 1.0


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Makes pages load Mermaid (3 MB) from the site, and only if they have a diagram. Otherwise the theme would load it
    from another server."""
    if 'class="mermaid"' not in output:
        return output
    up = "../" * page.file.src_uri.count("/")
    first, script, rest = output.partition("<script src=")
    return f'{first}<script src="{up}{MERMAID_IN_SITE}"></script>{script}{rest}'
