"""The embedded stack: Valkey, Triton, workers and api as supervised processes on one machine.

Owns what `inferq up` and the tests start. Must not import `api`, `workers` or `jobs`: it knows them as commands.
"""

from inferq.stack.embedded import EmbeddedStack, StackOptions
from inferq.stack.environment import StackEnvironment
from inferq.stack.errors import StackError
from inferq.stack.supervisor import Supervisor
from inferq.stack.triton import TritonServer
from inferq.stack.valkey import ValkeyServer

__all__ = [
    "EmbeddedStack",
    "StackEnvironment",
    "StackError",
    "StackOptions",
    "Supervisor",
    "TritonServer",
    "ValkeyServer",
]
