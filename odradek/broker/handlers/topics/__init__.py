"""Handlers for topics and configs."""
