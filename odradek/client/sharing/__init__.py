"""The parts of a share consumer (KIP-932)."""
