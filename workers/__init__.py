"""The workers: they claim queued jobs, prepare and batch them, call the engine and settle what came back.

Nothing here speaks HTTP to clients, and nothing here imports `api`.
"""
