"""Clock, threads and parked replies: the parts that the rest of the broker runs on."""
