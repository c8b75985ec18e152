"""Listeners with TLS: their settings, stores of keys and certificates, handshakes, and principals of certificates."""
