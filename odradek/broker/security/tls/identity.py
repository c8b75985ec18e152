"""Whether another certificate of a listener may take the place of the one it has while the broker runs.

Source: docs/spec/security.md#s1-4.
"""

from __future__ import annotations

from odradek.broker.security.tls.subject_name import subject_of


def refusal_of_another_identity(
    old: bytes, new: bytes, *, may_change_name: bool, may_lose_alternative_names: bool
) -> str | None:
    """None if clients that trusted `old`, in DER, will trust `new`; else what is different."""
    if old == new:
        return None
    before, after = subject_of(old), subject_of(new)
    if before != after and not may_change_name:
        return f"the new certificate is for {after}, this listener is {before}; ssl.allow.dn.changes=true permits it"
    if may_lose_alternative_names:
        return None
    lost = alternative_names(old) - alternative_names(new)
    if lost:
        return (
            f"the new certificate lacks the subject alternative names {', '.join(sorted(lost))};"
            " ssl.allow.san.changes=true permits it"
        )
    return None


def alternative_names(certificate: bytes) -> frozenset[str]:
    """Of a certificate in DER, each as its type and value, `DNS:localhost`."""
    from cryptography import x509

    try:
        extension = x509.load_der_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(one).__name__.removesuffix('Name')}:{one.value}" for one in extension.value)
