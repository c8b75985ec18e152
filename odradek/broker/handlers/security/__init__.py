"""The handlers of logins, rights, credentials and quotas."""
