"""Pages that are not stored in the repository because `make docs` writes them into the documentation site.

Stored pages cannot link to a generated page, which readers of the repository do not have. They link to the code that
writes the page. On the site, the link leads to the page itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support import apis_page, commands_page, presets_page, scenarios_page

GENERATED: Mapping[str, Callable[[], str]] = {
    "apis.md": apis_page.page,
    "commands.md": commands_page.page,
    "presets.md": presets_page.page,
    "scenarios.md": scenarios_page.page,
}
# The page, possibly with an anchor, that a link to a code file leads to on the site.
WRITTEN_FROM: Mapping[str, str] = {
    "odradek/broker/api/served.py": "apis.md",
    "odradek/broker/control/odd/odd.py": "presets.md#lawful-but-rare",
    "odradek/broker/control/presets/table.py": "presets.md",
}


def page_instead(text: str, code: str) -> str | None:
    """Returns the page that replaces the link target `code` on the site, or None if the link does not change.

    A link does not change if no page is written from `code`, or if its text is a file name in backticks, because such a
    link is about the code.
    """
    return None if text.startswith("`") else WRITTEN_FROM.get(code)
