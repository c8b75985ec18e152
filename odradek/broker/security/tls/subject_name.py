"""The subject of an X.509 certificate as text, as Java writes it for principals: RFC 2253, the last RDN first.

Source: RFC 5280, 4.1 (the fields of a certificate); RFC 2253; docs/spec/security.md#s1-3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE, SET, OBJECT_IDENTIFIER, VERSION = 0x30, 0x31, 0x06, 0xA0
SUBJECT = 4  # of a TBSCertificate, once its version is left out: serial, algorithm, issuer, validity, subject
KEYWORDS = {  # RFC 2253, 2.3; all others are written as numbers
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
ENCODINGS = {  # tag of a string type → how its bytes are read
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
ESCAPED = frozenset(',=+<>#;"\\')


class MalformedCertificate(ValueError):
    """Not the DER of a certificate."""


class Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """`CN=kate,OU=Dev,O=Odradek,C=DE`; empty if the subject is. Takes DER. Raises MalformedCertificate."""
    try:
        (outer,) = _elements(certificate)
        signed = next(_elements(outer.content))
        fields = [field for field in _elements(signed.content) if field.tag != VERSION]
        relative_names = list(_elements(fields[SUBJECT].content))
        return ",".join(_relative_name(one) for one in reversed(relative_names))
    except (IndexError, StopIteration, UnicodeDecodeError, ValueError) as error:
        raise MalformedCertificate(f"not a certificate: {error}") from None


def _elements(data: bytes) -> Iterator[Element]:
    """Of DER, one after the other. Raises IndexError where `data` ends within one."""
    position = 0
    while position < len(data):
        start, tag, length = position, data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise IndexError("it is cut short")
        yield Element(tag, data[position : position + length], data[start : position + length])
        position += length


def _relative_name(element: Element) -> str:
    if element.tag != SET:
        raise ValueError("its subject is no name")
    return "+".join(_attribute(one) for one in _elements(element.content))


def _attribute(element: Element) -> str:
    kind, value = _elements(element.content)
    if kind.tag != OBJECT_IDENTIFIER:
        raise ValueError("its subject is no name")
    number = _object_identifier(kind.content)
    keyword = KEYWORDS.get(number)
    encoding = ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _object_identifier(content: bytes) -> str:
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _escaped(text: str) -> str:
    """As Java: special characters anywhere, blanks at both ends."""
    inner = text.strip(" \r")
    if not inner:
        return "".join(f"\\{blank}" for blank in text)
    before, _, after = text.partition(inner)
    escaped = "".join(f"\\{one}" if one in ESCAPED else "\\00" if one == "\0" else one for one in inner)
    return "".join(f"\\{blank}" for blank in before) + escaped + "".join(f"\\{blank}" for blank in after)
