"""A process ends in time, whatever its threads are at."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As gRPC's objects do: freed at the interpreter's end, this waits for a lock that a thread holds, which that end has
# stopped.
LOCKED = """
import threading
import time
lock = threading.Lock()
def hold():
    with lock:
        held.set()
        while True:
            time.sleep(0.001)
held = threading.Event()
threading.Thread(target=hold, daemon=True).start()
held.wait()
class Freed:
    def __init__(self):
        self.lock = lock
    def __del__(self):
        with self.lock:
            pass
import colorsys
colorsys.kept = Freed()  # anywhere but here: what a stopped thread's own module holds is never freed
"""
# A log handler that never lets go.
STUCK_LOG = """
import logging
class Stuck(logging.Handler):
    def emit(self, record):
        threading.Event().wait()
logging.basicConfig(handlers=[Stuck()])
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("module", ["constraintd.cli", "constraintd_runner.cli"])
def test_a_program_ends_though_a_stopped_thread_holds_a_lock(module: str) -> None:
    done = run(f"{LOCKED}\nfrom {module} import program\nprogram()", "config", "show")
    assert (done.returncode, done.stderr) == (0, "")
    assert "listen = " in done.stdout


def test_what_was_logged_and_printed_is_written_before_a_process_leaves() -> None:
    done = run(
        "import logging\n"
        "from constraintd.serving.farewell import leave\n"
        "from constraintd.serving.logs import set_up_logs\n"
        "set_up_logs('text', 'info')\n"
        "print('said')\n"
        "logging.getLogger('x').info('logged')\n"
        "leave(3)"
    )
    assert (done.returncode, done.stdout) == (3, "said\n")
    assert done.stderr.endswith("INFO x: logged\n")


def test_a_stop_that_hangs_is_ended_and_says_so() -> None:
    done = run(
        "import threading\n"
        "from constraintd.serving.farewell import end_within\n"
        "from constraintd.serving.logs import set_up_logs\n"
        "set_up_logs('json', 'info')\n"
        "end_within(0.2)\n"
        "threading.Event().wait()"
    )
    assert done.returncode == 1
    assert "not stopped within 0.2 s: ending" in done.stderr


def test_a_stop_that_hangs_is_ended_though_nothing_can_be_logged() -> None:
    done = run(
        f"{LOCKED}{STUCK_LOG}\n"
        "from constraintd.serving.farewell import end_within\n"
        "end_within(0.2)\n"
        "threading.Event().wait()"
    )
    assert done.returncode == 1
    assert "in hold" in done.stderr  # where each thread stands


def test_a_process_is_ended_that_hangs_in_taking_the_interpreter_apart() -> None:
    done = run(f"{LOCKED}\nfrom constraintd.serving.farewell import end_within\nend_within(0.2)")
    assert done.returncode == 1
