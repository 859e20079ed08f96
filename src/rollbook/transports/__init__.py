"""Transports: each starts the agent on a host and carries its bytes.

One module for each transport holds its options, how it starts the agent and how it explains failures. `registry` finds
transports by name, `routing` chooses one for each host.
"""
