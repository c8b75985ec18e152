"""Finds the name that a user probably meant."""

from __future__ import annotations

from collections.abc import Iterable

LEAST_LETTERS = 3  # minimum length of a name that is treated as the beginning of another name


def closest(name: str, known: Iterable[str]) -> str | None:
    """Returns the shortest known name that begins with `name`, or else the most similar known name. Returns None if no
    name is similar."""
    from difflib import get_close_matches  # imported here, because only a mistyped name needs it

    by_lower = {each.lower(): each for each in known if each != name}
    if len(name) >= LEAST_LETTERS and (longer := [each for each in by_lower if each.startswith(name.lower())]):
        return by_lower[min(longer, key=len)]
    found = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint such as ` Did you mean 'topics'?`, or an empty string if no known name is similar."""
    found = closest(name, known)
    return f" Did you mean {found!r}?" if found is not None else ""
