"""Explains why a TLS handshake failed, for the person who configured TLS."""

from __future__ import annotations

import ssl

from odradek.client.common.errors import AuthenticationFailed, ClientError, RetriableError
from odradek.protocol.errors import ErrorCode

NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
CERTIFICATE_REQUIRED_ALERTS = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"})
CERTIFICATE_REFUSED_ALERTS = frozenset(
    {"SSLV3_ALERT_CERTIFICATE_UNKNOWN", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"}
)
EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
WRONG_NAME = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def tls_failure(name: str, error: OSError) -> ClientError:
    """Returns the error for a failed handshake: AuthenticationFailed if it will fail until one side changes its
    settings, otherwise RetriableError."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"the certificate of {name} is refused: {_why(error)}")
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return _of_reason(name, error.reason)
    return RetriableError(
        f"{name} closed the connection during the TLS handshake: its listener may not use TLS (PLAINTEXT,"
        " SASL_PLAINTEXT)",
        ErrorCode.NETWORK_EXCEPTION,
    )


def _why(error: ssl.SSLCertVerificationError) -> str:
    text = error.verify_message
    if error.verify_code in WRONG_NAME:
        return f"{text}. Connect with a name in the certificate, or set ssl_check_hostname=False"
    if error.verify_code == EXPIRED:
        return text
    return f"{text}. ssl_cafile must contain the CA that issued the certificate"


def _of_reason(name: str, reason: str) -> ClientError:
    words = reason.lower().replace("_", " ")
    if reason in NO_TLS:
        return AuthenticationFailed(
            f"{name} does not answer with TLS ({words}), because its listener does not use TLS. Set"
            " security_protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    if reason in CERTIFICATE_REQUIRED_ALERTS:
        return AuthenticationFailed(
            f"{name} refuses the connection ({words}): it may require a client certificate (ssl_certfile)"
        )
    if reason in CERTIFICATE_REFUSED_ALERTS:
        return AuthenticationFailed(f"{name} does not trust the certificate of this client in ssl_certfile ({words})")
    if "ALERT" in reason:
        return AuthenticationFailed(f"{name} refuses the TLS handshake: {words}")
    return RetriableError(f"TLS with {name} failed: {words}", ErrorCode.NETWORK_EXCEPTION)
