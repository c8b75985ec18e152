"""Connections to brokers, and the client's metadata about their cluster."""
