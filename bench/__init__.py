"""Measurements of the product beside its alternatives; `python -m bench` runs them.

Nothing here is part of the product, and nothing of the product imports it.
"""
