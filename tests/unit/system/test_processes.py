"""Tests the functions for processes, signals and event loops. `make test-elsewhere` runs these tests with the
fallbacks."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from odradek.system import processes
from odradek.system.processes import STOP_SIGNALS, is_alive, milliseconds_since_start


def test_a_process_is_alive_until_it_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(child.pid)
    child.communicate()
    assert not is_alive(child.pid)
    assert is_alive(os.getpid())


@pytest.mark.linux
def test_the_age_of_a_process_is_counted_from_its_start() -> None:
    script = "import time; time.sleep(0.2); from odradek.system.processes import *; print(milliseconds_since_start())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 200


def test_the_age_of_a_process_grows() -> None:
    first = milliseconds_since_start()
    assert first >= 0
    assert milliseconds_since_start() >= first


def test_memory_is_known_or_left_out() -> None:
    found = processes.resident_bytes()
    assert found is None or found > 1_000_000


def test_more_files_can_be_opened_afterwards() -> None:
    before, _ = processes.open_file_limits()
    processes.allow_many_open_files()
    soft, hard = processes.open_file_limits()
    assert before <= soft <= hard


@pytest.mark.parametrize("has_handlers", [True, False], ids=["handlers of the loop", "a socket"])
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_to_stop_reaches_the_loop(number: signal.Signals, has_handlers: bool) -> None:
    """Checks that each stop signal reaches the loop. The script runs in a new process, because signal handlers remain
    installed."""
    script = (
        "import asyncio, os, signal, sys, threading\n"
        "from odradek.system.processes import new_asyncio_loop, on_stop\n"
        "loop = new_asyncio_loop()\n"
        "def refuse(*_): raise NotImplementedError\n"
        f"if not {has_handlers}: loop.add_signal_handler = refuse\n"
        "async def main():\n"
        "    stopped = loop.create_future()\n"
        "    on_stop(loop, stopped.set_result)\n"
        f"    threading.Thread(target=signal.raise_signal, args=({int(number)},)).start()\n"
        "    print(int(await stopped))\n"
        "loop.run_until_complete(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == str(int(number)), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no other signals")
def test_other_signals_do_not_stop_the_loop() -> None:
    """Checks that a signal with its own handler does not stop the loop, although Python also writes this signal's
    number into the loop's socket."""
    script = (
        "import asyncio, signal, threading\n"
        "from odradek.system.processes import new_asyncio_loop, on_stop\n"
        "loop = new_asyncio_loop()\n"
        "def refuse(*_): raise NotImplementedError\n"
        "loop.add_signal_handler = refuse\n"
        "signal.signal(signal.SIGHUP, lambda *_: print('HUP', flush=True))\n"
        "async def main():\n"
        "    stopped = loop.create_future()\n"
        "    on_stop(loop, stopped.set_result)\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print((await stopped).name)\n"
        "loop.run_until_complete(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["HUP", "SIGTERM"], done.stderr


def test_a_loop_without_uvloop_watches_sockets() -> None:
    loop = processes.new_asyncio_loop()
    try:
        assert isinstance(loop, asyncio.SelectorEventLoop)
    finally:
        loop.close()
