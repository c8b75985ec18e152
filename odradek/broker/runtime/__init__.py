"""Clock, threads and delayed replies: the parts that the rest of the broker runs on."""
