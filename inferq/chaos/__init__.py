"""What `inferq chaos` is made of: a load, a killer, and a tally of what was promised and what became of it.

Owns the experiment. Must not import the service: it is a client of the stack like any other.
"""
