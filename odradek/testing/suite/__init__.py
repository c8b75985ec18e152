"""Tests a client through a small driver program, with scenarios that decide the rules that traffic alone cannot
decide."""
