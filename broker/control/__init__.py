"""HTTP on loopback for whoever runs the broker: /metrics, /healthz, /readyz.

listener    the socket, from the start; everything else once somebody comes
pages       what is served, with aiohttp
measures    what there is to be said: plain numbers, collected on the loop
exposition  the same as Prometheus reads it
readiness   whether everything is loaded
"""
