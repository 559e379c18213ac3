"""The Open Inference Protocol as Triton's own HTTP clients speak it: pure translations to jobs and back.

Everything here is pure; it must not talk to Redis, and what a request does is decided in `api.routes.v2`.
"""
