"""The handlers of producing and fetching."""
