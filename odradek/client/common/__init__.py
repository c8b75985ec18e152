"""Values and errors that all parts of the client use."""
