"""Determines which variant of the code is running: the one compiled by mypyc, or pure Python (docs/variants.md).

If the environment variable ODRADEK_PURE is set, a process runs pure Python, even if the compiled variant is installed
(`odradek/__init__.py`). If its value consists of several words, they are the reason, which the broker reports when it
starts.
"""

import os

from odradek.protocol import errors  # this module is one of those that may be compiled

PURE, COMPILED = "pure", "compiled"


def variant() -> str:
    return PURE if errors.__file__.endswith(".py") else COMPILED


def variant_for_people() -> str:
    if variant() == COMPILED:
        return "compiled"
    reason = os.environ.get("ODRADEK_PURE", "")
    return f"pure Python: {reason}" if " " in reason else "pure Python"
