"""Clock, threads and answers that are given later: the parts on which the rest of the broker runs."""
