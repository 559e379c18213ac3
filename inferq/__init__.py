"""What a person types and imports: the command line, the Python client and the embedded stack.

It starts `api` and `workers` as processes and talks HTTP to them; it imports neither.
"""
