"""The contract between api and workers: states, record, codec, keys, scripts and the store.

It imports neither of them, and it is the only package that talks to Redis.
"""
