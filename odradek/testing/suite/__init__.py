"""Tests a client through a small driver program. Its scenarios decide the rules that traffic alone cannot decide."""
