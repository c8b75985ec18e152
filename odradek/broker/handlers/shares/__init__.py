"""Handlers for share groups and their state."""
