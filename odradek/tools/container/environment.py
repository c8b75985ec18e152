"""Prepares the image's environment. Handles variables as the apache/kafka image does, and adds this image's defaults.

`odradek serve` maps `KAFKA_*` variables to settings according to the apache/kafka image's rules
(`odradek.broker.configuration.environment`). Before it does, the functions in this module add, replace or remove
variables. Values from the user override the defaults, and variables override the mounted file. The functions have no
side effects, except that `mounted_configuration` looks for files.

Source: the scripts of apache/kafka 4.3.1 (docker/resources/common-scripts/configure) and its usage guide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Only the first existing file in this list is read. These are the files that users mount into apache/kafka and
# bitnami/kafka.
MOUNTED_CONFIGURATIONS = ("/mnt/shared/config/server.properties", "/bitnami/kafka/config/server.properties")
SECRETS = "/etc/kafka/secrets"
DATA_DIRECTORY = "/var/lib/kafka/data"

DEFAULTS: Mapping[str, str] = {
    "KAFKA_LISTENERS": "PLAINTEXT://:9092",
    "KAFKA_LOG_DIRS": DATA_DIRECTORY,
    "KAFKA_ODRADEK_ADVERTISE": "arrival",
    "KAFKA_ODRADEK_ADVERTISE_PUBLISHED": "localhost",
    "KAFKA_ODRADEK_HTTP_HOST": "",
}
# Variables that contain names of files below SECRETS. Each file is a store or contains a store's password.
STORES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "KAFKA_SSL_KEYSTORE_LOCATION",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "KAFKA_SSL_TRUSTSTORE_LOCATION",
}
PASSWORDS = {
    "KAFKA_SSL_KEY_CREDENTIALS": "KAFKA_SSL_KEY_PASSWORD",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "KAFKA_SSL_KEYSTORE_PASSWORD",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "KAFKA_SSL_TRUSTSTORE_PASSWORD",
}
# A compose file can give one of these variables an empty value, which means that the variable is not set.
EMPTY_IS_UNSET = ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "CLUSTER_ID")
# Testcontainers for .NET leaves a comma at the end of these variables, which Kafka accepted before 4.2.
LISTENERS = frozenset({"KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"})
WITHOUT_A_QUORUM = (  # prefixes of settings
    "controller.quorum.",
    "controller.socket.",
    "initial.broker.registration.",
    "inter.broker.",
    "process.roles",
    "security.inter.broker.",
    "zookeeper.",
)
JAVA_VARIABLES = (
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
)


class SecretMissing(Exception):
    """A file below SECRETS cannot be read."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables for `odradek serve` and notes for the author of the compose file. Each note is one line."""

    variables: dict[str, str]
    notes: tuple[str, ...]


def complete(
    given: Mapping[str, str],
    in_file: Mapping[str, str],
    *,
    read_secret: Callable[[str], str],
    formatted_cluster_id: str | None = None,
) -> Environment:
    """Completes the container's variables.

    given                 the variables of the container
    in_file               the settings in the mounted server.properties
    read_secret           returns the content of the file with this name below SECRETS; raises SecretMissing
    formatted_cluster_id  the data directory's cluster id, if it has one
    """
    variables = {name: value for name, value in given.items() if value or name not in EMPTY_IS_UNSET}
    for name in LISTENERS & variables.keys():
        variables[name] = variables[name].rstrip(", \n")
    notes: list[str] = []
    _add_secrets(variables, read_secret)
    advertised = variables.get("KAFKA_ADVERTISED_LISTENERS") or in_file.get("advertised.listeners")
    if advertised and "KAFKA_LISTENERS" not in variables and "listeners" not in in_file:
        variables["KAFKA_LISTENERS"] = on_every_interface(advertised)
    for name, value in DEFAULTS.items():
        if name not in variables and setting_of(name) not in in_file:
            variables[name] = value
    if "KAFKA_LOG_DIRS" not in given and ("KAFKA_LOG_DIR" in given or "log.dir" in in_file):
        del variables["KAFKA_LOG_DIRS"]
    if formatted_cluster_id is not None and variables.get("CLUSTER_ID", formatted_cluster_id) != formatted_cluster_id:
        cluster_id = variables.pop("CLUSTER_ID")
        notes.append(f"CLUSTER_ID={cluster_id} is ignored: this data directory belongs to {formatted_cluster_id}")
    notes += _notes(given, in_file)
    for name in [name for name in variables if name in JAVA_VARIABLES or name.startswith("KAFKA_ZOOKEEPER_")]:
        del variables[name]
    return Environment(variables, tuple(notes))


def mounted_configuration() -> Path | None:
    """Returns the path of the mounted server.properties, or None if no such file is mounted."""
    return next((path for path in map(Path, MOUNTED_CONFIGURATIONS) if path.is_file()), None)


def data_directory(given: Mapping[str, str], in_file: Mapping[str, str]) -> Path:
    """Returns the data directory. Like Kafka, prefers log.dirs to log.dir."""
    for name in ("log.dirs", "log.dir"):
        found = given.get(variable_of(name)) or in_file.get(name)
        if found:
            return Path(found)
    return Path(DATA_DIRECTORY)


def variable_of(setting: str) -> str:
    """Returns the variable for a setting. The setting's name must not contain `_` or `-`."""
    return f"KAFKA_{setting.upper().replace('.', '_')}"


def setting_of(variable: str) -> str:
    """Returns the setting for a variable. The result is correct for settings whose names contain neither `_` nor
    `-`."""
    return variable.removeprefix("KAFKA_").lower().replace("_", ".")


def on_every_interface(advertised: str) -> str:
    """Returns a value for `listeners` with the names and ports of the given `advertised.listeners`, but on all
    interfaces."""
    listeners = []
    for entry in advertised.split(","):
        name, separator, address = entry.strip().partition("://")
        listeners.append(f"{name}{separator}:{address.rpartition(':')[2]}")
    return ",".join(listeners)


def _add_secrets(variables: dict[str, str], read_secret: Callable[[str], str]) -> None:
    for variable, location in STORES.items():
        if variable in variables:
            variables[location] = f"{SECRETS}/{variables.pop(variable)}"
    for variable, password in PASSWORDS.items():
        if variable in variables:
            variables[password] = read_secret(variables.pop(variable)).rstrip("\n")


def _notes(given: Mapping[str, str], in_file: Mapping[str, str]) -> Iterable[str]:
    settings = {setting_of(name) for name in given if name.startswith("KAFKA_")} | in_file.keys()
    of_a_quorum = sorted(name for name in settings if name.startswith(WITHOUT_A_QUORUM))
    if of_a_quorum:
        yield f"these settings have no effect on a single broker, and are ignored: {', '.join(of_a_quorum)}"
    of_a_vm = sorted(name for name in given if name in JAVA_VARIABLES)
    if of_a_vm:
        yield f"these variables are ignored, because this image has no Java VM: {', '.join(of_a_vm)}"
