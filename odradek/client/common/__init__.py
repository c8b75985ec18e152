"""Values, errors and prepared states: what every part of the client uses."""
