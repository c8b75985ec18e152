"""Delegation tokens (KIP-48), whose bearer can log in as a certain user for a limited time."""
