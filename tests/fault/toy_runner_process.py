"""The toy runner as a process of its own, to be killed: `python -m tests.fault.toy_runner_process --help`.

Which sessions have begun and ended it reads from the files that its predecessors in the same slot have left; those in
between it takes over. When its standard input closes it opens no more, finishes what it has, and ends.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.fault.drive import Drive, begin
from tests.fault.driver import Driver
from tests.fault.history import Recorder, read_marks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--daemon", action="append", required=True, help="its address; several: daemons on one store")
    parser.add_argument("--run", required=True, help="name of the run; the sessions' ids follow from it")
    parser.add_argument("--folder", type=Path, required=True, help="for histories")
    parser.add_argument("--slot", type=int, required=True, help="this runner's place among --slots")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--incarnation", type=int, required=True, help="how many were there before in this slot")
    parser.add_argument("--live", type=int, default=6, help="sessions at once [%(default)s]")
    parser.add_argument("--patience", type=float, default=3.0, help="seconds to wait for an answer")
    parser.add_argument("--mischief", type=float, default=0.25, help="how often something else than a step is done")
    options = parser.parse_args()

    stem = f"runner{options.slot}-"
    before = [path for path in options.folder.glob(f"{stem}*.jsonl") if path.name.startswith(stem)]
    recorder = Recorder(options.folder / f"{stem}{options.incarnation}.jsonl", f"{stem}{options.incarnation}")
    rng = random.Random(f"{options.run} {options.slot} {options.incarnation}")
    stopping = threading.Event()
    threading.Thread(target=_wait_for_end, args=(stopping,), daemon=True).start()
    driver = Driver(options.daemon, recorder, rng, patience=options.patience, mischief=options.mischief, unary=0.1)
    begun, ended = read_marks(before)
    left = sorted(begun - ended)
    every = itertools.count(options.slot, options.slots)
    fresh = (number for number in every if number not in begun)
    drives: list[Drive] = []
    thief = Thief(options.daemon, recorder, random.Random(rng.random()), lambda: list(drives), options.patience)
    if options.mischief > 0:
        thief.start()
    print("running", flush=True)
    while True:
        drives[:] = [drive for drive in drives if not drive.ended]
        while len(drives) < options.live and (left or not stopping.is_set()):
            number = left.pop(0) if left else next(fresh)
            recorder.begun(number)
            drives.append(begin(options.run, number))
        if not drives:
            break
        if drives and all(drive.rest > time.monotonic() for drive in drives):
            time.sleep(0.005)
        driver.turn(drives)
    thief.stop()
    driver.close()
    recorder.close()
    return 0


class Thief:
    """Takes sessions over while somebody else drives them, steps a few times, and drops them."""

    def __init__(
        self,
        addresses: list[str],
        recorder: Recorder,
        rng: random.Random,
        sessions: Callable[[], list[Drive]],
        patience: float,
    ) -> None:
        self._driver = Driver(addresses, recorder, rng, unary=0.5, mischief=0.1, patience=patience, client="-thief")
        self._rng = rng
        self._sessions = sessions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to steal."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it, between two deeds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._driver.close()

    def _run(self) -> None:
        while not self._stopping.wait(self._rng.uniform(0.0, 0.3)):
            drives = self._sessions()
            if not drives:
                continue
            victim = self._rng.choice(drives)
            own = Drive(victim.number, victim.session_id, victim.kind, fed=[0])  # fed: it takes over, and never opens
            for _ in range(self._rng.randint(2, 5)):
                if own.handle is not None and own.handle.directive.mask is None:
                    break  # the end is its owner's
                if own.handle is None and own.turns == 1 and not own.fed:
                    break
                self._driver.turn([own])


def _wait_for_end(stopping: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stopping.set()


if __name__ == "__main__":
    sys.exit(main())
