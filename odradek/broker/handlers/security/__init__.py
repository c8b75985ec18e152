"""Handlers for logins, permissions, credentials and quotas."""
