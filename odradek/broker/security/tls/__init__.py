"""TLS listeners: settings, stores of keys and certificates, handshakes, and principals of client certificates."""
