"""Settings: their tables, the sources of their values, and their meaning."""
