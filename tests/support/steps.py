"""Measures the work that code does by counting executed Python instructions. Their number is the same on every
machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(action: Callable[[], object]) -> int:
    """Runs the action and returns the number of executed instructions in the product's own functions.

    A call to a compiled function or a library function counts as a single instruction of the caller. Mark such tests
    `pure_only`.
    """
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            if "/odradek/" not in frame.f_code.co_filename:
                return None
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
        elif event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
