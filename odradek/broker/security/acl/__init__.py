"""Who may do what: ACLs, and decisions about them. A core (docs/spec/security.md#s3)."""
