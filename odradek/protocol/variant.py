"""Which variant of the code runs: compiled by mypyc, or pure Python (docs/variants.md).

If ODRADEK_PURE is set in its environment, a process runs pure Python, whatever is installed (`odradek/__init__.py`). A
value of several words is the reason, which the broker reports when it starts.
"""

import os

from odradek.protocol import errors  # one of the modules that may be compiled

PURE, COMPILED = "pure", "compiled"


def variant() -> str:
    return PURE if errors.__file__.endswith(".py") else COMPILED


def variant_for_people() -> str:
    if variant() == COMPILED:
        return "compiled"
    reason = os.environ.get("ODRADEK_PURE", "")
    return f"pure Python: {reason}" if " " in reason else "pure Python"
