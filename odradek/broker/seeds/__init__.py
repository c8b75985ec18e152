"""Creates the resources in a seed. Only imported if a seed is given."""
