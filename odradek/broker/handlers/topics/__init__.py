"""Handlers of topics and configs."""
