"""Security: who is who, who may do what, and how much. Decisions; the shells are `network`, `api` and `handlers`."""
