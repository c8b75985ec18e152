"""Parses and matches ranges of addresses, such as 10.0.0.0/8, that an ACL can have as its host (KIP-1276).

Source: docs/spec/kafka-4.4.md#s5-4.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

IPV4_RANGE: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")
PREFIX_OF_IPV6: Final = re.compile(r"[0-9]{1,3}")
LAST_OCTET: Final = 255
# Maximum number of cached results. A decision needs the ranges of all ACLs of a resource.
MAX_CACHED_RANGES: Final = 10_000


class AddressRange(NamedTuple):
    """The addresses of `bit_count` bits that begin with `first_bits`. `shift` is the number of remaining bits."""

    bit_count: int
    first_bits: int
    shift: int

    def contains(self, address: str) -> bool:
        """Returns whether the range contains the address, or False if `address` is not an IP address."""
        read = address_of(address)
        return read is not None and read[0] == self.bit_count and read[1] >> self.shift == self.first_bits


class NotARange(Exception):
    """Raised if a string is not a range of addresses. The error message is Kafka's."""


def is_written_as_range(host: str) -> bool:
    return "/" in host


def range_written(host: str) -> AddressRange:
    """Parses a range of IPv4 or IPv6 addresses. Bits after the prefix can be set. Raises NotARange."""
    if found := IPV4_RANGE.fullmatch(host):
        *octets, prefix = (int(each) for each in found.groups())
        for octet in octets:
            _check_within(octet, LAST_OCTET)
        _check_within(prefix, 32)
        return _range(32, int.from_bytes(bytes(octets), "big"), prefix)
    address, _, prefix_text = host.rpartition("/")
    if PREFIX_OF_IPV6.fullmatch(prefix_text) is None:
        raise NotARange(f"Could not parse [{host}]")
    try:
        value = int(IPv6Address(address))  # a zone, as in fe80::1%eth0, is ignored
    except ValueError:
        # Kafka's message quotes an IPv6 address without its prefix length.
        quoted = address if ":" in address else host
        raise NotARange(f"Could not parse [{quoted}]") from None
    if int(prefix_text) > 128:
        raise NotARange(f"Could not parse [{host}] - prefix length must be between 0 and 128")
    return _range(128, value, int(prefix_text))


def _check_within(value: int, last: int) -> None:
    if value > last:
        raise NotARange(f"Value [{value}] not in range [0,{last}]")


def _range(bit_count: int, address: int, prefix: int) -> AddressRange:
    shift = bit_count - prefix
    return AddressRange(bit_count, address >> shift, shift)


@lru_cache(MAX_CACHED_RANGES)
def range_of(host: str) -> AddressRange | None:
    """Returns the range that an ACL's host specifies, or None if it is not a range."""
    if not is_written_as_range(host):
        return None
    try:
        return range_written(host)
    except NotARange:
        return None


@lru_cache(MAX_CACHED_RANGES)
def address_of(text: str) -> tuple[int, int] | None:
    """Returns an address's number of bits and its value. An IPv4-mapped IPv6 address is treated as IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return (128, int(address)) if mapped is None else (32, int(mapped))
    return 32, int(address)
