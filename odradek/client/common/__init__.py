"""Values and errors used by all parts of the client."""
