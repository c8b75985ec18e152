"""Connections to brokers, and the client's metadata of their cluster."""
