"""What can be set, where it was set, and what it means."""
