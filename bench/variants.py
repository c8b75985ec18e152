"""Starts this broker's two variants for the benchmark: the current sources and the result of `make compile`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.oracle import REPOSITORY

# Bytecode is cached, as with `make run`, regardless of the environment.
PURE_ENVIRONMENT = {"ODRADEK_PURE": "1", "PYTHONDONTWRITEBYTECODE": "", "PYTHONSAFEPATH": "", "PYTHONPATH": ""}
# Runs a command with the compiled variant. Fails unless it was built from exactly these sources (docs/variants.md).
WITH_COMPILED = (str(REPOSITORY / ".ci" / "compiled"), "only")
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


class NotThere(Exception):
    """A broker or tool that was to be measured is not available. The message contains the reason."""


def compiled_environment() -> Mapping[str, str]:
    """Returns the environment for the compiled variant. Raises NotThere if the variant is not available.

    Call it only once, because comparing the sources takes longer than starting a broker.
    """
    words = [*WITH_COMPILED, sys.executable, "-c", PRINT_ENVIRONMENT]
    environment = {**os.environ, "ODRADEK_PURE": ""}
    try:
        done = subprocess.run(words, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotThere(f"there is no {WITH_COMPILED[0]}") from None
    if done.returncode != 0:
        raise NotThere(done.stderr.strip())
    found: dict[str, str] = json.loads(done.stdout)
    return {**found, "PYTHONDONTWRITEBYTECODE": ""}


class VariantProcess(BrokerProcess):
    """A broker that must report the requested variant in its ready file."""

    def __init__(
        self,
        data_dir: Path,
        overrides: Mapping[str, object],
        *,
        port: int,
        variant: str,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(data_dir, overrides, port=port, environment=environment)
        self._variant = variant

    def _start(self) -> None:
        super()._start()
        if (started := self.ready.get("variant", self._variant)) != self._variant:
            self.kill9()
            raise RuntimeError(f"the {started} variant was started, not the {self._variant} one")
