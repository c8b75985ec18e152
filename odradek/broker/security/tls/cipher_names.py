"""Names of cipher suites: `ssl.cipher.suites` has those of the registry of TLS, which Java uses; OpenSSL has its own.

Source: RFC 8446, B.4; OpenSSL's openssl-ciphers(1).
"""

from __future__ import annotations

from collections.abc import Sequence

TLS_1_3 = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


def before_tls_1_3(suites: Sequence[str]) -> list[str]:
    """OpenSSL's names of the suites for TLS 1.2; those that are OpenSSL's names already stay as they are."""
    return [_openssl_name(suite) for suite in suites if suite not in TLS_1_3]


def _openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384, TLS_RSA_WITH_AES_128_CBC_SHA AES128-SHA."""
    exchange, separator, cipher = suite.partition("_WITH_")
    if not separator:
        return suite
    exchange = exchange.removeprefix("TLS_").replace("_", "-")
    cipher = cipher.removesuffix("_SHA256") if cipher.startswith("CHACHA20_POLY1305") else cipher
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
