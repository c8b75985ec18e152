"""Connections to brokers, and the client's knowledge of their cluster."""
