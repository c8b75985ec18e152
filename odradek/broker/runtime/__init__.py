"""Clock, threads and answers that are given later: the parts that the rest of the broker runs on."""
