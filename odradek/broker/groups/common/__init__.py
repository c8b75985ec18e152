"""Code shared by all group types."""
