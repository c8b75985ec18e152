"""What a consumer consists of: positions, fetches, records, and its part in a group."""
