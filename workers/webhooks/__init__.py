"""Sends what jobs have to tell: signed messages to their owners' URLs, tried until they arrive or time is up.

It must not know models, engines or inputs, and nothing here runs in an inference worker.
"""
