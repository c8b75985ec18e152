"""The first query of docs/using-spark.md, word by word but for the address."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.clients.test_readme import ADDRESS_OF_ANY_PORT, example
from tests.support.oracle import REPOSITORY

TIMEOUT_S = 300


def test_the_first_query_does_what_the_page_says(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/using-spark.md").read_text()
    match = re.search(r"^## First query\n+```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert match is not None
    install, python, serve, *asking = match[1].splitlines()
    assert install.startswith("pip install 'odradek[spark]'")
    (tmp_path / "enrich.py").write_text(example("First query", "docs/using-spark.md"))
    serve = serve.replace("--data-dir", "--port 0 --ready-file ready.json --data-dir")
    named = [re.sub(r"(odradek (?:wait|topics create|produce|consume))", r"\1 -b $address", line) for line in asking]
    here = 'sed -i "s/localhost:9092/$address/" enrich.py'
    script = "\n".join(["set -e", python, serve, ADDRESS_OF_ANY_PORT, here, *named, "kill %1", "wait"])
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as bash:
        try:
            out, err = bash.communicate(timeout=TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
    assert "ONE TEA" in out.splitlines(), out + err
