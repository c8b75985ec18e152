"""SASL, by which the client of a connection proves its identity.

`tables` has the states of a connection, `authentication` uses them to handle frames, the mechanisms (`plain`, `scram`,
`oauthbearer`) judge tokens, and connections call `requests`.
"""
