"""The handlers of groups and their offsets."""
