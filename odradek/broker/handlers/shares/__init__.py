"""Handlers of share groups and their state."""
