"""The broker's settings: the tables that define the settings, the sources of the values, and the rules for using
them."""
