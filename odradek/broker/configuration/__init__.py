"""Settings: their tables, their sources and their meaning."""
