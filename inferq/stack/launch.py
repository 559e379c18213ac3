"""Runs a program that can't outlive its parent: `python launch.py PARENT_PID GRACE PROGRAM ARGUMENT…`.

Owns what happens between fork and exec, which a threaded parent can't safely run itself, and the guard over programs
with children. Must not import beyond the standard library: it runs isolated, without site-packages.

With GRACE `-` it becomes the program, which the kernel then kills with the parent. That is not enough for a program
whose children don't notice its death: with a GRACE in seconds it stays as the program's guard. It passes SIGTERM on and
ends like the program. When the parent dies, it sends SIGTERM, waits for GRACE, and kills the whole process group.
"""

import ctypes
import os
import signal
import sys
import time
from typing import NoReturn

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Become the program under the same process id, or guard it."""
    parent_pid, grace, program = int(argv[1]), argv[2], argv[3:]
    if grace == "-":
        die_with_parent(parent_pid, signal.SIGKILL)
        os.execvp(program[0], program)  # noqa: S606 - no shell is wanted
    guard(parent_pid, float(grace), program)


def die_with_parent(parent_pid: int, number: signal.Signals) -> None:
    """Ask the kernel for a signal at the parent's death; ends at once when it died before it could be asked."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        sys.exit("the parent is gone")


def guard(parent_pid: int, grace_seconds: float, program: list[str]) -> NoReturn:
    """Run the program as a child, and end with it."""
    watched = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    die_with_parent(parent_pid, signal.SIGTERM)
    guard_pid = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(guard_pid, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        os.execvp(program[0], program)  # noqa: S606 - no shell is wanted
    while True:
        number = signal.sigwait(watched)
        if number == signal.SIGTERM:
            os.kill(child, signal.SIGTERM)
            if os.getppid() != parent_pid:
                bury(child, time.monotonic() + grace_seconds)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            end_like(os.waitstatus_to_exitcode(status))


def bury(child: int, deadline: float) -> NoReturn:
    """Wait for the orphaned program until the deadline, then kill whatever is in the group, this guard included."""
    while os.waitpid(child, os.WNOHANG) == (0, 0) and (left := deadline - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left)
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("unreachable")


def end_like(exit_code: int) -> NoReturn:
    """Exit with the program's status, or by the signal that ended it."""
    if exit_code < 0:
        number = -exit_code
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    sys.exit(exit_code)


if __name__ == "__main__":
    main(sys.argv)
