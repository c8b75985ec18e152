"""Handlers for Produce, Fetch and other requests about records."""
