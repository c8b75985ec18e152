"""TLS and SASL for the clients: settings, SASL exchanges, and certificates."""
