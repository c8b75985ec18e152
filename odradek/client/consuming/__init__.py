"""The parts of a consumer: its positions, its fetches, record decoding, and its group membership."""
