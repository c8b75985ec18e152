"""Delegation tokens (KIP-48). The bearer of a token can log in as the token's owner for a limited time."""
