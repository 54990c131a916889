"""The inside of a helper process, see `helper.py`: it answers requests, within limits that the kernel keeps.

Only the standard library is imported: a helper starts in a few milliseconds.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Callable

LENGTH = struct.Struct("=Q")
"""Precedes each request and each answer."""


def answer_requests(work: Callable[[bytes], bytes], *, memory: int, seconds: int = 0) -> None:
    """Answers each request, until there are no more. The process gets so many bytes of addresses, and so many
    seconds of the processor in all, if that is not 0."""
    _limit_this_process(memory, seconds)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        answer = work(requests.read(*LENGTH.unpack(head)))
        limit_processor(0)
        answers.write(LENGTH.pack(len(answer)))
        answers.write(answer)
        answers.flush()


def limit_processor(seconds: float) -> None:
    """From now on this process may use so many seconds of the processor; 0 is no limit."""
    # Of the process, in the system too. The signal's default action, which ends it, needs no Python code.
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_this_process(memory: int, seconds: int) -> None:
    os.nice(19)
    limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_CORE: 0}
    if seconds:
        limits[resource.RLIMIT_CPU] = seconds
    for limit, most in limits.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    # What this process has inherited may block or ignore them.
    for number in (signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    # What stops the owner may send these to all processes of its group or service. The owner decides.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
