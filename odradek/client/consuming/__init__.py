"""The parts of a consumer: positions, fetches, records, group membership."""
