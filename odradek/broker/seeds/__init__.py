"""Creates the resources in a seed before the broker accepts its first client. Only imported if a seed is given."""
