"""Creates what a seed asks for, before the broker accepts its first client. Imported only if a seed is given."""
