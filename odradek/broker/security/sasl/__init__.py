"""SASL: how a connection proves whose it is.

`tables` has the states of a connection, `authentication` decides by them what a frame means, the mechanisms (`plain`,
`scram`, `oauthbearer`) judge tokens, and `requests` is the shell that connections call.
"""
