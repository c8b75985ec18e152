"""Tests the progress bar of commands that read a known number of bytes."""

from __future__ import annotations

import io

from odradek.tools.commands.inspect import ByteBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_appears_after_a_second_and_is_not_redrawn_too_often() -> None:
    now, terminal = [0.0], Terminal()
    with ByteBar(4_000_000_000, terminal, lambda: now[0]) as bar:
        for at_s in (0.5, 1.0, 1.1, 1.3):
            now[0] = at_s
            bar.add("orders-0", 500_000_000)
    lines = terminal.getvalue().split("\r")[1:]
    assert [line.removesuffix("\x1b[K").split("  ", 1)[-1] for line in lines] == [
        " 25%  1.0 GB, 1.0 GB/s  orders-0",
        " 50%  2.0 GB, 1.5 GB/s  orders-0",
        "",
    ]
    assert bar.seconds == 1.3


def test_nothing_is_written_if_the_stream_is_not_a_terminal() -> None:
    now, stream = [0.0], io.StringIO()
    with ByteBar(100, stream, lambda: now[0]) as bar:
        now[0] = 9.0
        bar.add("orders-0", 50)
    assert stream.getvalue() == ""
