"""What the commands of `inferq` do, one module a family; `inferq.cli` says how they are spelled.

They are imported when a command runs, so that `inferq --help` stays quick.
"""
