"""The schema registry client that the commands use. Its errors are written for the commands' users."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.client.schema_registry.address import DEFAULT_URL, VARIABLE, registry_address
from odradek.client.schema_registry.client import RegistryFailure, SchemaRegistryClient, SchemaRegistryError, quoted
from odradek.registry.schemas import Json, Reference, SchemaText
from odradek.tools.commands.errors import NOT_FOUND, NOT_PERMITTED, REFUSED, UNREACHABLE, CommandError

__all__ = ["RegistryClient", "quoted", "registry_client"]

STATUS: Final[Mapping[RegistryFailure, int]] = {
    RegistryFailure.UNREACHABLE: UNREACHABLE,
    RegistryFailure.NO_REGISTRY: UNREACHABLE,
    RegistryFailure.LOGIN: NOT_PERMITTED,
    RegistryFailure.FORBIDDEN: NOT_PERMITTED,
    RegistryFailure.NOT_FOUND: NOT_FOUND,
    RegistryFailure.REFUSED: REFUSED,
}
# Advice added to a message, keyed by the registry's error code. Errors without a row here get the advice for their kind
# of error.
ADVICE_FOR_CODES: Final[Mapping[int, str]] = {
    40401: "`odradek schemas list` shows all subjects. Names are case-sensitive.",
    40402: "`odradek schemas show SUBJECT` lists the versions of a subject.",
    409: "Data written with one version could not be read with the other. `odradek schemas check` compares schemas"
    " without registering them.",
    42201: "Nothing was registered. Check the file and --type.",
}
_START_ONE = (
    f"Start one with `odradek serve --schema-registry`, or specify another registry with --registry or {VARIABLE}."
)
_CHECK = (
    f"Check the address: --registry or {VARIABLE} must name a schema registry, not the Kafka port or the page of a"
    " broker."
)
_RIGHTS = (
    "A subject needs permissions on the topic after which it is named: READ to see the subject, WRITE to change it."
)
ADVICE: Final[Mapping[RegistryFailure, str]] = {
    RegistryFailure.UNREACHABLE: _START_ONE,
    RegistryFailure.NO_REGISTRY: _CHECK,
    RegistryFailure.FORBIDDEN: _RIGHTS,
}


class RegistryClient(SchemaRegistryClient):
    """A SchemaRegistryClient that raises CommandError."""

    def ask(self, method: str, path: str, body: Json = None) -> Json:
        try:
            return super().ask(method, path, body)
        except SchemaRegistryError as error:
            raise _command_error(error) from error

    def resolved(self, text: SchemaText) -> Sequence[tuple[Reference, str]]:
        try:
            return super().resolved(text)
        except SchemaRegistryError as error:
            raise _command_error(error) from error


def _command_error(error: SchemaRegistryError) -> CommandError:
    status = STATUS[error.failure]
    if error.failure is RegistryFailure.LOGIN:
        return CommandError(f"{error}. Give the name of the user and the file with the password.", status)
    of_code = (
        ADVICE_FOR_CODES.get(error.code)
        if error.failure in (RegistryFailure.NOT_FOUND, RegistryFailure.REFUSED)
        else None
    )
    end = "." if error.failure is RegistryFailure.NO_REGISTRY else ""
    advice = of_code or ADVICE.get(error.failure)
    return CommandError(f"{error}{end}\n{advice}" if advice else str(error), status)


def registry_client(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> RegistryClient:
    """Creates a client as the options specify. Raises ValueError if the options contradict one another. Raises OSError
    if the password file cannot be read."""
    password = None
    if options.registry_password_file is not None:
        password = Path(options.registry_password_file).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    url = options.registry or environ.get(VARIABLE) or DEFAULT_URL
    return RegistryClient(registry_address(url, options.registry_user, password), options.timeout)
