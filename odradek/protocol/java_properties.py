"""Java properties: the text format of Kafka's settings, of brokers and of clients."""

from collections.abc import Iterator

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"


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
