"""Handlers for groups and their offsets."""
