"""Delegation tokens (KIP-48): which user a token's bearer may log in as, and until when."""
