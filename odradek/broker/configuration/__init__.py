"""Defines the broker's settings and reads and checks their values."""
