"""Determines whether this process runs the variant compiled by mypyc or pure Python (docs/variants.md).

If the environment variable ODRADEK_PURE is set, a process runs pure Python even if the compiled variant is installed
(`odradek/__init__.py`). If the variable's value consists of several words, the broker reports them as the reason when
it starts.
"""

import os

from odradek.protocol import errors  # this module is compiled in the compiled variant

PURE, COMPILED = "pure", "compiled"


def variant() -> str:
    return PURE if errors.__file__.endswith(".py") else COMPILED


def variant_for_people() -> str:
    if variant() == COMPILED:
        return "compiled"
    reason = os.environ.get("ODRADEK_PURE", "")
    return f"pure Python: {reason}" if " " in reason else "pure Python"
