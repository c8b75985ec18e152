"""Bytes where JSON has none."""

from base64 import b64encode
from collections.abc import Mapping


def json_value(value: object) -> str | Mapping[str, str]:
    """Bytes as JSON has them, for `json.dumps(default=…)`: text where they are UTF-8, else {"base64": …}."""
    assert isinstance(value, bytes | bytearray | memoryview)
    data = bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
