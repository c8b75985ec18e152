"""Determines which releases of Odradek can read a data directory, from two lines of its meta.properties.

`odradek.version` is the newest release that has used the directory. `odradek.readable.since` is the oldest release that
can read it. A directory that only Kafka has used has neither of these lines. Kafka ignores both lines but keeps them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek import __version__

NEWEST_LINE: Final = "odradek.version"
SINCE_LINE: Final = "odradek.readable.since"
_PARTS: Final = 3  # MAJOR.MINOR.PATCH
_MAX_DIGITS: Final = 9


class Releases(NamedTuple):
    """Two releases as strings such as "0.1.0". Both are empty for a directory that Odradek has never used.

    newest  the newest release that has used the directory
    since   the oldest release that can read it
    """

    newest: str
    since: str

    def after(self, own: Releases) -> Releases:
        """Returns the releases to record once `own` has used the directory. Neither release ever becomes older."""
        return Releases(max(self.newest, own.newest, key=release_order), max(self.since, own.since, key=release_order))


# Raise `since` in the commit that first writes a file that earlier releases cannot read (docs/formats). Records that
# depend on a feature level need no such change, because each release checks the feature levels.
OWN: Final = Releases(newest=__version__, since="0.1.0")
NONE: Final = Releases("", "")


def release_order(release: str) -> tuple[int, ...]:
    """Returns a sort key for a release. A string that is not a release sorts after all releases, because only a later
    release of Odradek can have written it. An empty string sorts before all releases."""
    if not release:
        return ()
    parts = release.split(".")
    if len(parts) != _PARTS or not all(each.isdecimal() and len(each) <= _MAX_DIGITS for each in parts):
        return (10**_MAX_DIGITS,)
    return tuple(map(int, parts))


def releases_in(data: bytes) -> Releases:
    """Reads the two lines from a meta.properties file. Ignores all other lines."""
    rows = (line.strip().partition("=")[::2] for line in data.decode("utf-8", "replace").splitlines())
    fields = {name.strip(): value.strip() for name, value in rows}
    return Releases(fields.get(NEWEST_LINE, ""), fields.get(SINCE_LINE, ""))


def with_releases(data: bytes, releases: Releases) -> bytes:
    """Returns the content of a meta.properties file with these releases. All other lines remain unchanged."""
    own = (NEWEST_LINE.encode() + b"=", SINCE_LINE.encode() + b"=")
    other_lines = b"".join(
        line.rstrip(b"\r\n") + b"\n" for line in data.splitlines() if not line.strip().startswith(own)
    )
    return other_lines + f"{NEWEST_LINE}={releases.newest}\n{SINCE_LINE}={releases.since}\n".encode()
