"""Groups of every type: what their protocols share."""
