"""HTTP on loopback for operators: /metrics, /healthz, /readyz.

listener    the socket, from the start; everything else is imported with the first connection
pages       the HTTP pages, with aiohttp; connections: what a connection to them may cost
measures    the metrics as plain numbers, collected on the loop
exposition  the metrics in Prometheus' text form
access      who is answered
guard       which Host and Origin headers are let in
page/       the page
"""
