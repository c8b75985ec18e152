"""Random unique ids.

Not the standard `uuid` module, whose import costs a tenth of a broker's start.
"""

import os


def random_uuid() -> bytes:
    """16 bytes, a version 4 UUID. As in Kafka its base64 does not begin with "-", which looks like an option."""
    while True:
        uuid = bytearray(os.urandom(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        if uuid[0] >> 2 != 62:  # the value that "-" stands for
            return bytes(uuid)


def hex_text(uuid: bytes) -> str:
    """Spells a UUID as Java does, in 36 characters."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
