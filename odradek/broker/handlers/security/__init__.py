"""Handlers of logins, permissions, credentials and quotas."""
