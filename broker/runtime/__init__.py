"""Clock, threads, parked replies: what every part of the broker runs on."""
