"""TLS and SASL on the client's side: settings, the SASL exchanges, and certificates."""
