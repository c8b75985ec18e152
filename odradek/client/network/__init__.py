"""Connections to brokers, and what is known of their cluster."""
