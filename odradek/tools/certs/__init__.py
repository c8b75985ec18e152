"""A certificate authority for development: what `odradek certs` makes."""
