"""Generates random UUIDs and random numbers.

The standard `uuid` module is not used, because importing it takes a tenth of the time that a broker needs to start.
"""

import os


def random_uuid() -> bytes:
    """Returns the 16 bytes of a version 4 UUID. As in Kafka, its base64 form never begins with "-", so that it cannot
    be mistaken for a command-line option."""
    while True:
        uuid = bytearray(os.urandom(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        if uuid[0] >> 2 != 62:  # "-" is digit 62 of base64
            return bytes(uuid)


def hex_text(uuid: bytes) -> str:
    """Formats a UUID as Java does, in 36 characters."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def random_below(limit: int) -> int:
    """Returns a random number from 0 to `limit` - 1, or 0 if the limit is not positive."""
    from random import randrange  # imported here because most brokers never need it

    return randrange(limit) if limit > 0 else 0
