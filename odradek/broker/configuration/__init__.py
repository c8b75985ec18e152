"""The broker's settings: the tables that define them, the sources of their values, and the rules for using them."""
