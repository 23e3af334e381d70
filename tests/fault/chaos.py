"""Kills daemons and runners at random instants and named places, and checks that nobody could tell.

    python -m tests.fault.chaos --kills 300 --store sqlite --seed 1

Toy runners drive sessions all the while; every process that is killed is started anew, on the same store. At the end
all sessions must reach their end, and every history must be one that the model explains. Exits 1 otherwise, and then
leaves its folder of histories and logs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from constraintd_client import ConstraintClient, Unavailable

from constraintd import failpoints
from tests.daemon_process import daemon_process
from tests.fault.model import Text
from tests.fault.processes import CALLERS_CHANNEL, Killable, address_of, daemon, proxy, redis_server, toy_runner
from tests.fault.sessions import KINDS, undisturbed
from tests.fault.verdict import Verdict, verdict_of

# There is room in memory for some half of the sessions, so that many are passivated and revived all the time.
DAEMON_FLAGS = ("--max-hot-session-bytes", "2500000", "--session-passive-seconds", "0.3", "--drain-seconds", "0.5")
_REACH_SECONDS = 1.5
"""How long a daemon may take to reach its fatal failpoint before it is killed from outside."""
_LIFE_SECONDS = 0.4
_STUCK_SECONDS = 60.0
# Reached with every step; the others are rare.
_EACH_STEP = (
    *(failpoints.APPEND_BEFORE, failpoints.APPEND_AFTER, failpoints.COMMIT_MIDDLE),
    *(failpoints.REPLY_BEFORE, failpoints.REPLY_AFTER),
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to do."""

    store: str
    kills: int
    seed: int
    runners: int = 2
    live: int = 6
    daemons: int = 1
    """More than one: replicas on one store, each killed in its turn."""
    targets: tuple[str, ...] = ("daemon", "runner", "both")
    places: tuple[str, ...] = failpoints.NAMES
    """Failpoints that each kill a daemon once, before the random ones."""
    bug: str = ""
    proxy: tuple[str, ...] = ()
    """The faulty proxy's arguments; none: no proxy."""
    seconds: float = 1.0
    """How long to run after the last kill before sessions stop being opened."""
    work: int = 10
    """KiB of history (each some three calls) to be written before the first kill, and after the last, at least."""
    finish: bool = True
    """Whether sessions then go on to their end; those of a daemon with a bug may never."""


@dataclass(slots=True)
class Tally:
    """What has been killed."""

    kills: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    """Failpoints at which a daemon killed itself."""
    missed: Counter[str] = field(default_factory=Counter)


def known_texts() -> dict[str, Text]:
    """What each kind of session comes to where nothing goes wrong, by its name."""
    with daemon_process() as address, ConstraintClient(address, options=CALLERS_CHANNEL) as client:
        _wait_for(client)
        return {kind.name: undisturbed(client, kind) for kind in KINDS}


def _wait_for(client: ConstraintClient) -> None:
    """On a busy machine the very first connection may take longer than gRPC has patience."""
    until = time.monotonic() + _STUCK_SECONDS
    while True:
        try:
            client.server_info()
        except Unavailable:
            if time.monotonic() > until:
                raise
        else:
            return


class Chaos:
    """One run in a folder of its own."""

    def __init__(self, plan: Plan, folder: Path, store: str, progress: Progress = lambda _: None) -> None:
        self.tally = Tally()
        self.run = f"chaos {plan.seed}"
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._rng = random.Random(plan.seed)
        self._places = list(plan.places)
        self._fates: dict[str, str] = {}  # where each daemon is to die
        self._began = time.monotonic()
        names = [f"daemon{index}" for index in range(plan.daemons)]
        self._daemons = [daemon(folder, store, *DAEMON_FLAGS, name=name) for name in names]
        self._addresses = [address_of(folder, name) for name in names]
        self._proxy: Killable | None = None
        if plan.proxy:
            self._proxy = proxy(folder, self._addresses[0], "--seed", str(plan.seed), *plan.proxy)
        reached_by = [address_of(folder, "proxy")] if plan.proxy else self._addresses
        self._runners = [
            toy_runner(
                *(folder, self.run, reached_by, slot, plan.runners),
                *("--live", str(plan.live), "--patience", "1" if plan.proxy else "3"),
            )
            for slot in range(plan.runners)
        ]

    def go(self, texts: Mapping[str, Text]) -> Verdict:
        """Starts everything, does the killing, lets the sessions finish, and judges."""
        everything = [*self._daemons, *self._runners, *([self._proxy] if self._proxy else [])]
        try:
            for one in self._daemons:
                self._start_daemon(one)
            if self._proxy:
                self._proxy.start()
            for runner in self._runners:
                self._start_runner(runner)
            self._let_run(0.0, self._plan.work)
            while (killed := self.tally.kills.total()) < self._plan.kills:
                self._kill_once()
                self._tell(f"kill {killed + 1}/{self._plan.kills}")
            for one in self._daemons:  # the last life is one without a fate
                one.kill()
                one.start(*self._spec(""))
            self._fates.clear()
            self._let_run(self._plan.seconds, self._plan.work)
            if self._plan.finish:
                self._finish()
        finally:
            for one in everything:
                one.kill()
        self._tell("checking")
        return verdict_of(self._folder, self.run, texts)

    # --- one kill ---

    def _kill_once(self) -> None:
        target = self._rng.choice(self._plan.targets)
        victim = self._rng.choice(self._daemons)
        runner = self._rng.choice(self._runners)
        self._let_run(self._rng.uniform(0.0, _LIFE_SECONDS))
        if target != "runner":
            place = self._fates.get(victim.name, "")
            if place and not victim.died(_REACH_SECONDS):
                self.tally.missed[place] += 1
            elif place:
                self.tally.reached[place] += 1
            victim.kill()
        if target != "daemon":
            runner.kill()
            self._start_runner(runner)
        if target != "runner":
            self._start_daemon(victim)
        self.tally.kills[target] += 1

    def _start_daemon(self, one: Killable) -> None:
        """With its death ahead of it: at a named place, or by a kill from outside; again if it dies on the way."""
        while True:
            place, spec = self._fate()
            self._fates[one.name] = place
            one.start(*self._spec(spec), wait=False)
            if one.wait_ready():
                return
            self.tally.reached[place] += 1
            self.tally.kills["daemon"] += 1

    def _fate(self) -> tuple[str, str]:
        """A failpoint to die at (none: ""), and the SPEC that says so."""
        if self._places:
            place = self._places.pop(self._rng.randrange(len(self._places)))
            return place, f"{place}=kill@{self._rng.randint(1, 3)}"
        if not self._plan.places or self._rng.random() < 0.3:
            return "", ""
        if self._rng.random() < 0.3:
            seed = self._rng.randrange(1 << 16)
            return "", f"append.before=error@p0.01;append.after=error@p0.01;reply.before=delay:0.01@p0.05;seed={seed}"
        place = self._rng.choice(self._plan.places)
        return place, f"{place}=kill@{self._rng.randint(1, 40 if place in _EACH_STEP else 5)}"

    def _spec(self, spec: str) -> list[str]:
        parts = [part for part in (spec, f"bug:{self._plan.bug}" if self._plan.bug else "") if part]
        return ["--failpoints", ";".join(parts)] if parts else []

    def _start_runner(self, runner: Killable) -> None:
        runner.start("--incarnation", str(runner.starts), wait=False)

    # --- the course of a run ---

    def _let_run(self, seconds: float, work: float = 0.1) -> None:
        """At least so long, and until the histories have grown by so many KiB: what is killed was at work.

        A daemon that meets its fate meanwhile is started anew.
        """
        until = time.monotonic() + seconds
        enough = self._written() + 1024 * work
        patience = time.monotonic() + _STUCK_SECONDS
        while time.monotonic() < until or (self._written() < enough and time.monotonic() < patience):
            time.sleep(0.005)
            for one in self._daemons:
                place = self._fates.get(one.name, "")
                if place and one.died(0.0):
                    self.tally.reached[place] += 1
                    self.tally.kills["daemon"] += 1
                    self._start_daemon(one)

    def _written(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("runner*.jsonl"))

    def _finish(self) -> None:
        """No new sessions; those under way go on to their end, or count as stuck."""
        for runner in self._runners:
            runner.let_finish()
        until = time.monotonic() + _STUCK_SECONDS
        for runner in self._runners:
            while not runner.finished(0.2) and time.monotonic() < until:
                self._tell("finishing")

    def _tell(self, what: str) -> None:
        tally = ", ".join(f"{name} {count}" for name, count in sorted(self.tally.kills.items()))
        reached = len(self.tally.reached)
        seconds = time.monotonic() - self._began
        self._progress(
            f"{what} ({tally}); failpoints {reached}/{len(self._plan.places)}; "
            f"{self._written() >> 10} KiB of history; {seconds:.0f} s"
        )


@contextmanager
def workplace(store: str, *, keep_on_error: bool = True) -> Iterator[tuple[Path, str]]:
    """A folder, and what `--store` takes for a store in it; the folder stays if the block raises."""
    folder = Path(tempfile.mkdtemp(prefix="constraintd-chaos-"))
    with ExitStack() as stack:
        name = stack.enter_context(redis_server(folder)) if store == "redis" else f"sqlite:{folder}/sessions.db"
        yield folder, name
    shutil.rmtree(folder, ignore_errors=True)


class Unclean(Exception):
    """A run that was not clean; the message is its verdict, and where its folder is."""


def rehearse(plan: Plan, progress: Progress = lambda _: None) -> tuple[Verdict, Tally]:
    """One run from start to end. Its folder goes only if the verdict is clean."""
    texts = known_texts()
    folder: Path | None = None
    verdict: Verdict | None = None
    try:
        with workplace(plan.store) as (folder, store):
            chaos = Chaos(plan, folder, store, progress)
            verdict = chaos.go(texts)
            if not verdict.clean:
                raise Unclean(f"{verdict.table()}\nfolder: {folder}")
    except Unclean:
        assert verdict is not None
    return verdict, chaos.tally


def show(line: str) -> None:
    """One line that is written over, on a terminal; else lines."""
    terminal = sys.stdout.isatty()
    print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="[%(default)s]")
    parser.add_argument("--store", choices=["sqlite", "redis"], default="sqlite", help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--daemons", type=int, default=1, help="replicas on the store, redis only [%(default)s]")
    parser.add_argument("--lossy", action="store_true", help="runners reach the daemon through the faulty proxy")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends, too
    lossy = ("--drop", "0.01", "--delay", "0.05", "--duplicate", "0.03", "--cut", "0.003") if options.lossy else ()
    plan = Plan(options.store, options.kills, options.seed, daemons=options.daemons, proxy=lossy)

    verdict, tally = rehearse(plan, show)
    print(f"\n{options.store}, seed {options.seed}")
    for name, count in sorted(tally.kills.items()):
        print(f"{'kills: ' + name:<34}{count:>8}")
    for place in failpoints.NAMES:
        print(f"{'died at ' + place:<34}{tally.reached[place]:>8}    not reached {tally.missed[place]}")
    print(verdict.table())
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
