"""How deep this process's threads may go."""

from __future__ import annotations

import resource
import threading


def deepen_stacks(size: int) -> None:
    """Gives the main thread and every Python thread from now on a stack of at least `size` bytes, if allowed.

    A grammar is tried on a smaller stack first, so whatever recursion it causes has been seen to fit. Without this, a
    thread's stack would be the platform's: 8 MB here, 2 MB under `ulimit -s unlimited`, 128 KB on musl. Memory is only
    taken as it is used.
    """
    threading.stack_size(size)
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != resource.RLIM_INFINITY and soft < size:
        most = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_STACK, (max(soft, most), hard))
