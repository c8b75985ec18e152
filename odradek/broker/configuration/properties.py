"""Reads Java properties files and `KAFKA_*` environment variables into names and values."""

from collections.abc import Iterator, Mapping

# Variables of the apache/kafka image that are not broker settings.
NOT_SETTINGS = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
CLUSTER_ID_VARIABLE = "CLUSTER_ID"  # what the image formats a new data directory with
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"


def settings_of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`KAFKA_LOG_SEGMENT_BYTES=1` is `log.segment.bytes=1`; `___` stands for `-`, `__` for `_`.

    source  the apache/kafka image 4.3.1 (its docker wrapper)
    """
    settings = {}
    for variable, value in environ.items():
        if variable.startswith("KAFKA_") and variable not in NOT_SETTINGS:
            name = variable.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_")
            settings[name] = value
    if CLUSTER_ID_VARIABLE in environ:
        settings["odradek.cluster.id"] = environ[CLUSTER_ID_VARIABLE]
    return settings


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file; of a repeated name the last. Nothing is refused, as in Java.

    A key ends at the first unescaped `=`, `:` or blank. `#` and `!` begin a comment line, a backslash at the end of a
    line joins the next one to it.
    """
    return dict(_pair(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    whole = ""
    joined = False
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        joined = backslashes % 2 == 1
        whole += line[:-1] if joined else line
        if not joined:
            yield whole
            whole = ""
    if whole:
        yield whole


def _pair(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + BLANKS:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(BLANKS)
    return _unescape(line[:end]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            code = text[position : position + 4]
            if escaped == "u" and len(code) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in code):
                parts.append(chr(int(code, 16)))
                position += 4
            else:
                parts.append(ESCAPES.get(escaped, escaped))
        else:
            parts.append(character)
    return "".join(parts)
