"""The parts of a consumer: its positions, its fetches, the decoding of records, and its group membership."""
