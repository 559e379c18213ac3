"""The gateway: HTTP in, the contract of `jobs` out.

It moves bytes and refuses what can't work; it must not import workers, and touches no tensor element by element.
"""
