"""The handlers of share groups and their state."""
