"""The mark for tests that the compiled variant cannot run (docs/variants.md)."""

import pytest

from odradek.protocol.variant import COMPILED, variant

REPLACES_FUNCTIONS = "it breaks the code on purpose by replacing functions, which compiled callers do not look up"
pure_only = pytest.mark.skipif(variant() == COMPILED, reason=REPLACES_FUNCTIONS)
