"""The handlers of transactions."""
