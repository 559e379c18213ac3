"""Runs a program that dies with its parent: `python launch.py SIGNAL PARENT_PID PROGRAM ARGUMENT…`.

Owns the few lines between fork and exec that a threaded parent can't safely run itself. Must import nothing beyond the
standard library: it runs isolated, without site-packages.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Ask the kernel for SIGNAL at the parent's death, then become PROGRAM under the same process id."""
    death_signal, parent_pid, program = int(argv[1]), int(argv[2]), argv[3:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:  # it died before the kernel was asked: no signal will come
        sys.exit("the parent is gone")
    os.execvp(program[0], program)  # noqa: S606 - the whole point


if __name__ == "__main__":
    main(sys.argv)
