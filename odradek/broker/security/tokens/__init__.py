"""Delegation tokens (KIP-48): who may log in for whom, and until when."""
