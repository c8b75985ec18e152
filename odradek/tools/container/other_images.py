"""Maps the environment variables of bitnami/kafka, confluentinc/cp-kafka and confluent-local to those of apache/kafka.

`TABLE` has a row for each variable that has a meaning in these images but not in apache/kafka. All other variables
remain unchanged, because cp-kafka and apache/kafka use the same variables for settings. The functions have no side
effects.

Sources: the environment variables documented in the READMEs of bitnami/kafka 3.5 to 4.0 and of confluentinc/cp-kafka
7.4 to 8.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

BITNAMI_SETTING = "KAFKA_CFG_"
BITNAMI_DATA_DIRECTORY = "/bitnami/kafka/data"
# A file is taken from the first of these directories that contains it. Users mount certificates into the first
# directory, and Bitnami's scripts copy them to the second.
BITNAMI_CERTIFICATES = ("/bitnami/kafka/config/certs", "/opt/bitnami/kafka/config/certs")
FILE_SUFFIX = "_FILE"  # Bitnami reads the value of variable X from the file named in X_FILE
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
SSL_PROTOCOLS = ("SSL", "SASL_SSL")
PLAIN = "PLAIN"
JKS, PEM = "JKS", "PEM"
# Suffixes of the variables that specify where the broker's key is.
KEY_STORES = ("SSL_KEYSTORE_LOCATION", "SSL_KEYSTORE_KEY", "SSL_KEYSTORE_FILENAME")
# In Bitnami's image, a SASL listener accepts these mechanisms unless sasl.enabled.mechanisms is set.
BITNAMI_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
LOGIN_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule required",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule required",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule required",
}


class VariableUse(Enum):
    RENAMED = auto()  # `to` is the variable that has the same meaning
    USERS = auto()  # a list of user names, with the passwords in the variable `to`
    PASSWORDS = auto()
    SCRAM = auto()  # a list of arguments for `kafka-storage format --add-scram`, one per line
    STORES = auto()  # describes the stores with Bitnami's certificates
    NO_EFFECT = auto()  # can be ignored, because a single broker without Java does not need the variable
    NOT_MAPPED = auto()  # the variable has no effect; `to` describes the alternative


@dataclass(frozen=True, slots=True)
class Row:
    """The row for one variable of another image, or for all variables with a prefix if the name ends with `*`."""

    name: str
    use: VariableUse
    to: str = ""
    is_bitnami: bool = True

    def covers(self, variable: str) -> bool:
        return variable.startswith(self.name[:-1]) if self.name.endswith("*") else variable == self.name


REST_INSTEAD = "set KAFKA_ODRADEK_HTTP_ACTIONS=true and use records over HTTP on port 9644"
TABLE: tuple[Row, ...] = (
    # bitnami/kafka
    Row("KAFKA_KRAFT_CLUSTER_ID", VariableUse.RENAMED, "CLUSTER_ID"),
    Row("KAFKA_TLS_CLIENT_AUTH", VariableUse.RENAMED, "KAFKA_SSL_CLIENT_AUTH"),
    Row("KAFKA_CLIENT_USERS", VariableUse.USERS, "KAFKA_CLIENT_PASSWORDS"),
    Row("KAFKA_CLIENT_PASSWORDS", VariableUse.PASSWORDS),
    Row("KAFKA_INTER_BROKER_USER", VariableUse.USERS, "KAFKA_INTER_BROKER_PASSWORD"),
    Row("KAFKA_INTER_BROKER_PASSWORD", VariableUse.PASSWORDS),
    Row("KAFKA_CONTROLLER_USER", VariableUse.NO_EFFECT),
    Row("KAFKA_CONTROLLER_PASSWORD", VariableUse.NO_EFFECT),
    Row("KAFKA_CLIENT_LISTENER_NAME", VariableUse.NO_EFFECT),
    Row("ALLOW_PLAINTEXT_LISTENER", VariableUse.NO_EFFECT),
    Row("KAFKA_ENABLE_KRAFT", VariableUse.NO_EFFECT),
    Row("KAFKA_CFG_KRAFT_MODE", VariableUse.NO_EFFECT),
    Row("KAFKA_SKIP_KRAFT_STORAGE_INIT", VariableUse.NO_EFFECT),
    Row("KAFKA_INITIAL_CONTROLLERS", VariableUse.NO_EFFECT),
    Row("BITNAMI_DEBUG", VariableUse.NO_EFFECT),
    Row("KAFKA_CERTIFICATE_PASSWORD", VariableUse.STORES),
    Row("KAFKA_TLS_TYPE", VariableUse.STORES),
    Row("KAFKA_TLS_TRUSTSTORE_FILE", VariableUse.STORES),
    Row(
        "KAFKA_EXTRA_FLAGS",
        VariableUse.NOT_MAPPED,
        "options of `odradek serve` after the name of the image, or in `command:`",
    ),
    # confluentinc/cp-kafka, cp-server and confluent-local
    Row("KAFKA_REST_*", VariableUse.NOT_MAPPED, REST_INSTEAD, is_bitnami=False),
    Row("CONFLUENT_*", VariableUse.NO_EFFECT, is_bitnami=False),
    Row("KAFKA_CONFLUENT_*", VariableUse.NO_EFFECT, is_bitnami=False),
    Row("KAFKA_KRAFT_MODE", VariableUse.NO_EFFECT, is_bitnami=False),
    Row("CUB_CLASSPATH", VariableUse.NO_EFFECT, is_bitnami=False),
    # set by docker/rootfs/etc/confluent/docker/configure
    Row("ODRADEK_ADD_SCRAM", VariableUse.SCRAM, is_bitnami=False),
    # older images
    Row(
        "KAFKA_ADVERTISED_HOST_NAME", VariableUse.NOT_MAPPED, "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://HOST:PORT", False
    ),
    Row("KAFKA_ADVERTISED_PORT", VariableUse.NOT_MAPPED, "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://HOST:PORT", False),
)


@dataclass(frozen=True, slots=True)
class ScramLogin:
    user: str
    password: str
    mechanism: str


@dataclass(slots=True)
class MappedEnvironment:
    """The environment in the form that the apache/kafka image accepts.

    scram_logins  users with SCRAM passwords, which the broker must create on its first start
    notes         log lines about variables that can be ignored without losing anything
    warnings      log lines about variables that have an effect in the other image but not here
    """

    variables: dict[str, str]
    scram_logins: tuple[ScramLogin, ...] = ()
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class InvalidVariable(Exception):
    """A variable of another image contradicts another variable or needs a file that is missing. The message explains
    what to change."""


def as_apache_kafka(
    given: Mapping[str, str],
    in_file: Mapping[str, str],
    *,
    read_file: Callable[[str], str],
    is_file: Callable[[str], bool],
) -> MappedEnvironment:
    """Maps a container's variables. Returns them unchanged if they are already variables of apache/kafka.

    in_file    the settings in the mounted server.properties
    read_file  returns the content of a certificate, or of the file named in a variable such as
               KAFKA_CLIENT_PASSWORDS_FILE
    is_file    returns whether there is a file at a path

    Raises InvalidVariable. Raises OSError if `read_file` cannot read a file.
    """
    variables = _with_contents(given, read_file)
    mapped = MappedEnvironment({})
    of_bitnami: dict[str, str] = {}
    logins: dict[str, str] = {}
    idle: list[str] = []
    lost: list[str] = []
    scram: list[ScramLogin] = []
    is_bitnami = False
    for name, value in variables.items():
        row = next((row for row in TABLE if row.covers(name)), None)
        is_bitnami |= name.startswith(BITNAMI_SETTING) or (row is not None and row.is_bitnami)
        if row is None and name.startswith(BITNAMI_SETTING):
            of_bitnami[_name_of_bitnami(name)] = value
        elif row is None:
            mapped.variables[_name_of_confluent(name)] = value
        elif row.use is VariableUse.RENAMED:
            of_bitnami[row.to] = value
        elif row.use is VariableUse.USERS:
            logins.update(_logins(name, value, row.to, variables.get(row.to)))
        elif row.use is VariableUse.SCRAM:
            scram = list(_added_scram(value))
        elif row.use is VariableUse.NO_EFFECT:
            idle.append(name)
        elif row.use is VariableUse.NOT_MAPPED:
            lost.append(f"{name} (instead: {row.to})")
    mapped.variables.update(of_bitnami)  # in Bitnami's image, KAFKA_CFG_X takes precedence over KAFKA_X
    has_directory = bool(
        {"KAFKA_LOG_DIRS", "KAFKA_LOG_DIR"} & mapped.variables.keys() or {"log.dirs", "log.dir"} & in_file.keys()
    )
    if is_bitnami and not has_directory:
        mapped.variables["KAFKA_LOG_DIRS"] = BITNAMI_DATA_DIRECTORY
    if logins:
        _add_logins(mapped, logins)
    if scram:
        _add_scram(mapped, scram)
    if is_bitnami:
        _add_certificates(mapped.variables, variables, in_file, read_file, is_file)
    if idle:
        mapped.notes.append(f"these variables are not needed here, and are ignored: {', '.join(sorted(idle))}")
    if lost:
        mapped.warnings.append(f"these variables of another image have no effect here: {'; '.join(sorted(lost))}")
    return mapped


def _with_contents(given: Mapping[str, str], read_file: Callable[[str], str]) -> dict[str, str]:
    """Returns the variables. If a variable of Bitnami's image is given as X_FILE, X is set to that file's content."""
    variables = dict(given)
    for row in TABLE:
        if row.is_bitnami and row.name + FILE_SUFFIX in variables:
            variables[row.name] = read_file(variables.pop(row.name + FILE_SUFFIX)).rstrip("\n")
    return variables


def _name_of_bitnami(variable: str) -> str:
    """Returns apache/kafka's name for a variable `KAFKA_CFG_…`. Bitnami's names do not distinguish the `_` in SASL_SSL
    from the `.` in a setting's name."""
    rest = variable.removeprefix(BITNAMI_SETTING)
    return "KAFKA_" + re.sub("SASL_(SSL|PLAINTEXT)", r"SASL__\1", rest)


def _name_of_confluent(variable: str) -> str:
    """Returns apache/kafka's name for a listener setting. cp-kafka replaces `-` with `__` and `_` with `___`, while
    apache/kafka does the reverse. The names of protocols and mechanisms reveal which character was intended."""
    if not variable.startswith("KAFKA_LISTENER_NAME_"):
        return variable
    variable = re.sub("SASL___(SSL|PLAINTEXT)", r"SASL__\1", variable)
    return re.sub("SCRAM__SHA__(256|512)", r"SCRAM___SHA___\1", variable)


def _logins(users_name: str, users: str, passwords_name: str, passwords: str | None) -> Iterable[tuple[str, str]]:
    names = [name.strip() for name in users.split(",") if name.strip()]
    found = [] if passwords is None else [each.strip() for each in re.split("[,;]", passwords)]
    if len(found) != len(names):
        raise InvalidVariable(
            f"{users_name} has {len(names)} users but {passwords_name} has {len(found)} passwords: give one"
            " password for each user, in the same order, separated by commas"
        )
    return zip(names, found, strict=True)


def _add_logins(mapped: MappedEnvironment, logins: Mapping[str, str]) -> None:
    """Allows the users to log in on every SASL listener with each mechanism that the listener offers."""
    listeners = [name for name in _listeners(mapped.variables) if _protocol(mapped.variables, name) in SASL_PROTOCOLS]
    if not listeners:
        mapped.warnings.append(
            f"no listener uses SASL, so nobody has to log in, and these users have no effect: {', '.join(logins)}."
            " To change that, set KAFKA_LISTENER_SECURITY_PROTOCOL_MAP, for example CLIENT:SASL_PLAINTEXT"
        )
        return
    enabled = mapped.variables.setdefault("KAFKA_SASL_ENABLED_MECHANISMS", BITNAMI_MECHANISMS)
    mechanisms = [name for name in (each.strip().upper() for each in enabled.split(",")) if name in LOGIN_MODULES]
    for listener in listeners:
        for mechanism in mechanisms:
            accounts = "".join(f' user_{user}="{_quoted(password)}"' for user, password in logins.items())
            mapped.variables.setdefault(
                f"KAFKA_LISTENER_NAME_{_in_a_name(listener)}_{_in_a_name(mechanism)}_SASL_JAAS_CONFIG",
                LOGIN_MODULES[mechanism] + (accounts if mechanism == PLAIN else "") + ";",
            )
    mapped.scram_logins = tuple(
        ScramLogin(user, password, mechanism)
        for user, password in logins.items()
        for mechanism in mechanisms
        if mechanism != PLAIN
    )


def _added_scram(text: str) -> Iterable[ScramLogin]:
    """Parses the values of `--add-scram`, one per line, such as SCRAM-SHA-512=[name=alice,password=secret]."""
    for line in text.splitlines():
        found = re.fullmatch(r"(SCRAM-SHA-(?:256|512))=\[([^\]]*)\]", line.strip())
        fields = {} if found is None else dict(part.strip().partition("=")[::2] for part in found[2].split(","))
        if found is None or fields.keys() != {"name", "password"}:
            raise InvalidVariable(
                "kafka-storage --add-scram supports only SCRAM-SHA-512=[name=NAME,password=PASSWORD], or the same"
                " with SCRAM-SHA-256"
            )
        yield ScramLogin(fields["name"], fields["password"], found[1])


def _add_scram(mapped: MappedEnvironment, logins: list[ScramLogin]) -> None:
    """Allows the users that `kafka-storage --add-scram` creates to log in on every SASL listener. Testcontainers sets
    the login module in a variable whose name contains SCRAM-SHA-512. Shells such as dash drop this variable, because
    names must not contain `-`."""
    mapped.scram_logins += tuple(logins)
    for listener in _listeners(mapped.variables):
        if _protocol(mapped.variables, listener) in SASL_PROTOCOLS:
            for mechanism in {login.mechanism: None for login in logins}:
                prefix = f"KAFKA_LISTENER_NAME_{_in_a_name(listener)}_"
                if f"{prefix}{mechanism}_SASL_JAAS_CONFIG" not in mapped.variables:
                    name = f"{prefix}{_in_a_name(mechanism)}_SASL_JAAS_CONFIG"
                    mapped.variables.setdefault(name, LOGIN_MODULES[mechanism] + ";")


def _add_certificates(
    to: dict[str, str],
    given: Mapping[str, str],
    in_file: Mapping[str, str],
    read_file: Callable[[str], str],
    is_file: Callable[[str], bool],
) -> None:
    """Adds the stores that Bitnami's image uses if a listener has TLS, unless the variables or the file specify
    different stores."""
    named = (*to, *(name.upper().replace(".", "_") for name in in_file))
    of_controllers = to.get("KAFKA_CONTROLLER_LISTENER_NAMES", "").upper().split(",")
    clients = [listener for listener in _listeners(to) if listener not in of_controllers]
    has_tls = any(_protocol(to, listener) in SSL_PROTOCOLS for listener in clients)
    if not has_tls or any(name.endswith(KEY_STORES) for name in named):
        return
    to.setdefault("KAFKA_SSL_CLIENT_AUTH", "required")  # Bitnami's default, unlike Kafka's
    kind = given.get("KAFKA_TLS_TYPE", JKS).upper()
    if kind not in (JKS, PEM):
        raise InvalidVariable(f"KAFKA_TLS_TYPE must be {JKS} or {PEM}, not {kind}")
    password = given.get("KAFKA_CERTIFICATE_PASSWORD")

    def file(name: str) -> str:
        paths = [f"{directory}/{name}" for directory in BITNAMI_CERTIFICATES]
        found = next((path for path in paths if is_file(path)), None)
        if found is None:
            raise InvalidVariable(
                f"a listener uses TLS with KAFKA_TLS_TYPE={kind}, but the file {paths[0]} does not exist: mount it"
            )
        return found

    trusted = given.get("KAFKA_TLS_TRUSTSTORE_FILE") or file(f"kafka.truststore.{kind.lower()}")
    stores = {"KAFKA_SSL_KEYSTORE_TYPE": kind, "KAFKA_SSL_TRUSTSTORE_TYPE": kind}
    stores["KAFKA_SSL_TRUSTSTORE_LOCATION"] = trusted
    if kind == PEM:
        stores["KAFKA_SSL_KEYSTORE_KEY"] = read_file(file("kafka.keystore.key"))
        stores["KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN"] = read_file(file("kafka.keystore.pem"))
    else:
        stores["KAFKA_SSL_KEYSTORE_LOCATION"] = file("kafka.keystore.jks")
    if password:
        stores["KAFKA_SSL_KEY_PASSWORD"] = password
    if password and kind == JKS:
        stores |= {"KAFKA_SSL_KEYSTORE_PASSWORD": password, "KAFKA_SSL_TRUSTSTORE_PASSWORD": password}
    to |= stores


def _listeners(variables: Mapping[str, str]) -> list[str]:
    given = variables.get("KAFKA_LISTENERS") or variables.get("KAFKA_ADVERTISED_LISTENERS") or ""
    return [entry.strip().partition("://")[0].upper() for entry in given.split(",") if entry.strip()]


def _protocol(variables: Mapping[str, str], listener: str) -> str:
    """Returns a listener's security protocol, which is the listener's name if the protocol map has no entry for it."""
    pairs = (
        entry.strip().partition(":") for entry in variables.get("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "").split(",")
    )
    return {name.upper(): protocol.upper() for name, _, protocol in pairs}.get(listener, listener)


def _in_a_name(text: str) -> str:
    return text.upper().replace("_", "__").replace("-", "___")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
