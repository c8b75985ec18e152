"""Code that is shared by groups of every type."""
