"""TLS and SASL of the client: settings, SASL exchanges, and certificates."""
