"""Runs a guide like a reader who pastes its code blocks, from top to bottom, into a shell in an empty directory.

The language of a block determines its use:

    python            a complete program; it is stored under the file name in the line before it (`enrich.py`:), and
                      runs immediately unless a shell block below names that file
    sh                lines for the shell
    text              the output of the preceding block; … stands for any text
    java, go, …       a file of examples/, or part of one
    json, yaml, xml   checked by other tests

The shell has its own network, in which no other broker can use localhost:9092.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.oracle import REPOSITORY

FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The last file name in the paragraph before a block.
FILE_NAME = re.compile(
    r"`(?:[\w-]+/)*([\w-]+\.(?:py|go|mjs|java|rs))`(?:(?!\n\n|\.(?:py|go|mjs|java|rs)`).)*:\n\n\Z", re.DOTALL
)
LANGUAGES = frozenset({"python", "sh", "text", "java", "go", "js", "rust", "json", "yaml", "xml"})
DEFAULT_NAME = "program.py"
# Commands that the script leaves out, because they may not be installed.
ELSEWHERE = (
    "docker",
    "mvn",
    "gradle",
    "make",
    "pip install",
    "python -m venv",
    "git clone",
    ". .venv/bin/activate",
    "export PG",
)
# Matches the line with which a Spark program downloads packages. The test provides them instead, because a guide's
# network cannot reach Maven Central.
PACKAGES = re.compile(r'^ *\.config\("spark\.jars\.packages", "[^"]+"\)\n', re.MULTILINE)
MARK = "::: block "
# Brings up the loopback interface of a new network, like `ip link set lo up`.
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x1))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block of a page. `line` is the number of its first line, and `file` is the file name in the line
    before it."""

    page: str
    line: int
    language: str
    text: str
    file: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """Returns the fenced blocks of a page. `page` is its path in the repository."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = []
    for fence in FENCED.finditer(text):
        name = FILE_NAME.search(text, 0, fence.start())
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, fence[1], fence[2], name[1] if name else None))
    return found


@cache
def sources() -> tuple[str, ...]:
    """Returns the contents of the files that a block may quote."""
    folders = (REPOSITORY / "examples", REPOSITORY / "odradek")
    suffixes = {".py", ".java", ".go", ".mjs", ".rs", ".yml", ".xml"}
    return tuple(
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.suffix in suffixes and "node_modules" not in path.parts
    )


def is_part_of_a_file(block: Block) -> bool:
    """Returns whether some file of examples/ or odradek/ contains all paragraphs of the block, in this order."""
    paragraphs = [each.strip("\n") for each in re.split(r"\n\n+", block.text)]
    return any(_in_order(paragraphs, source) for source in sources())


def _in_order(paragraphs: Sequence[str], source: str) -> bool:
    at = 0
    for each in paragraphs:
        at = source.find(f"\n{each}\n", max(0, at - 1)) if not source.startswith(f"{each}\n") or at else 0
        if at < 0:
            return False
        at += len(each) + 1
    return True


def commands(block: Block) -> Iterator[str]:
    """Yields the commands of a shell block, including their continuation lines."""
    yield from re.findall(r"(?:.*\\\n)*.+", block.text)


def is_elsewhere(command: str) -> bool:
    words = re.sub(r"^\w+=\S+ ", "", command.strip())
    return words.startswith(ELSEWHERE)


def installed_by(block: Block) -> list[str]:
    """Returns the distributions in the block's `pip install …` lines."""
    lines = [each for each in commands(block) if each.startswith("pip install ")]
    words = [word for line in lines for word in shlex.split(line, comments=True)[2:] if not word.startswith("-")]
    return [re.split(r"[\[=@ ]", word)[0] for word in words]


def script(page: Sequence[Block]) -> str:
    """Returns the script that a reader would paste. It prints a marker line before each block, so that the output can
    be split there."""
    lines = ["set -e", "exec 2>&1"]
    for number, block in enumerate(page):
        lines.append(f"echo '{MARK}{number}'")
        if block.language == "sh":
            lines += [each for each in commands(block) if not is_elsewhere(each)]
        elif block.language == "python" and not is_part_of_a_file(block):
            file = block.file or DEFAULT_NAME
            lines += [f"cat >{file} <<'END OF BLOCK'", PACKAGES.sub("", block.text).rstrip("\n"), "END OF BLOCK"]
            if not any(each.language == "sh" and file in each.text for each in page[number + 1 :]):
                lines.append(f"python -m pytest -q {file}" if is_test(block) else f"python {file}")
    return "\n".join(lines) + "\n"


def is_test(block: Block) -> bool:
    return re.search(r"^(?:async )?def test_", block.text, re.MULTILINE) is not None


def can_have_a_network() -> bool:
    return subprocess.run([*_network(), "true"], check=False, capture_output=True).returncode == 0


def _network() -> list[str]:
    return ["unshare", "--net", *([] if os.getuid() == 0 else ["--map-root-user"])]


def play(page: Sequence[Block], folder: Path, *, timeout_s: float, **environment: str) -> list[str]:
    """Runs the blocks in `folder` and returns the output of each block. Fails if a command fails or the time limit is
    exceeded."""
    inherited = {name: os.environ[name] for name in ("LANG", "TMPDIR", "JAVA_HOME") if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        [*_network(), sys.executable, "-c", LOOPBACK, "bash", "-c", script(page)],
        cwd=folder,
        env={**inherited, "PATH": path, "HOME": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as bash:
        try:
            bash.wait(timeout_s)
            said = None
        except subprocess.TimeoutExpired:
            said = f"it did not end within {timeout_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)  # also kills processes that the blocks have left in the background
        assert bash.stdout is not None
        output = bash.stdout.read()
    parts = output.split(MARK)[1:]
    at = page[len(parts) - 1].place if parts else "before the first block"
    reason = said or (f"status {bash.returncode}" if bash.returncode else None)
    assert reason is None, f"{at}: {reason}\n{output}"
    return [part.partition("\n")[2] for part in parts]


def check_output(page: Sequence[Block], printed: Sequence[str]) -> None:
    """Checks that each text block's lines appear, in this order, in the output of the block before it."""
    for number, block in enumerate(page):
        if block.language == "text":
            rest = iter(printed[number - 1].splitlines())
            for line in block.text.splitlines():
                pattern = re.compile(".*".join(re.escape(part) for part in line.strip().split("…")))
                assert any(pattern.fullmatch(each.strip()) for each in rest), (
                    f"{block.place}: {line!r} is not printed:\n{printed[number - 1]}"
                )


def by_language(pages: Mapping[str, Sequence[Block]], *languages: str) -> list[Block]:
    return [block for page in pages.values() for block in page if block.language in languages]
