"""What `Admin` asks of a cluster beside topics and transactions, one file for each kind of thing."""
