"""A daemon and a runner under full load for a long time: what they hold must not grow.

    python -m tests.fault.soak --minutes 20 --plot soak.png

Opens, steps, changes and closes sessions, generates and cancels, and sends bad input all the while (`soak_load`). After
a quarter of the time it begins to look: memory, threads, descriptors, and the sessions that are open. Exits 1 if from
then on memory grows by more than 2%, or anything else does at all, or if anything was answered as it should not be.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from constraintd_client import ConstraintClient

from benchmarks.form import show_progress
from tests.fault.soak_load import Load
from tests.killable_daemon import KillableDaemon
from tests.runner_process import mortal_runner
from tests.tiny_decoder import write_genai_folder

_LIVE = 64
# So little room for grammars that it is full long before the looks begin to count.
_FLAGS = ("--max-grammar-cache-bytes", str(48 << 20), "--log-level", "error")
_SECONDS_A_SAMPLE = 5.0
_MOST_GROWTH = 0.02


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a process. `seconds` from the beginning; `rss` in bytes."""

    seconds: float
    rss: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a process from the first look that counts to the last."""

    name: str
    growth: float
    """Of memory, as a part of what it was: medians of the first and of the last fifth of the looks."""
    threads: tuple[int, int]
    """Medians of the first and of the last fifth of the looks, as the next."""
    descriptors: tuple[int, int]

    @property
    def is_steady(self) -> bool:
        """Whether it passes. Threads and descriptors are those of calls under way as well: one more or less is none."""
        return self.growth <= _MOST_GROWTH and all(
            after - before <= 1 for before, after in (self.threads, self.descriptors)
        )

    def __str__(self) -> str:
        threads, descriptors = ("{} to {}".format(*pair) for pair in (self.threads, self.descriptors))
        verdict = "steady" if self.is_steady else "GROWS"
        return f"{self.name:7} memory {self.growth:+.2%}, threads {threads}, descriptors {descriptors}: {verdict}"


def finding(name: str, samples: Sequence[Sample]) -> Finding:
    """What the looks that count come to."""
    fifth = max(1, len(samples) // 5)
    first, last = samples[:fifth], samples[-fifth:]

    def medians(of: Callable[[Sample], int]) -> tuple[int, int]:
        return round(statistics.median(map(of, first))), round(statistics.median(map(of, last)))

    before, after = medians(lambda each: each.rss)
    return Finding(name, after / before - 1, medians(lambda each: each.threads), medians(lambda each: each.descriptors))


def look(pid: int, seconds: float) -> Sample:
    """The process now."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(seconds, int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"]), descriptors)


def main() -> int:
    """Runs it, prints what it found, and gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.soak", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0, metavar="N", help="how long [%(default)g]")
    parser.add_argument("--plot", metavar="FILE", help="draw memory over time into FILE (.png or .svg)")
    chosen = parser.parse_args()
    seconds = chosen.minutes * 60
    looks: dict[str, list[Sample]] = {"daemon": [], "runner": []}
    with tempfile.TemporaryDirectory(prefix="constraintd-") as folder:
        place = Path(folder)
        model = write_genai_folder(place / "model")
        with (
            KillableDaemon(place, f"sqlite:{place}/sessions.sqlite", *_FLAGS) as daemon,
            mortal_runner(model, daemon.address) as runner,
            ConstraintClient(daemon.address) as client,
        ):
            load = Load(daemon.address, runner.address, live=_LIVE)
            load.start()
            began = time.monotonic()
            while (gone := time.monotonic() - began) < seconds and not load.surprises:
                time.sleep(_SECONDS_A_SAMPLE)
                looks["daemon"].append(look(daemon.pid, gone))
                looks["runner"].append(look(runner.pid, gone))
                show_progress(f"s; {dict(load.done)}", round(gone), round(seconds))
            load.stop()
            left = sum(1 for _ in client.list_sessions())
    found = [
        finding(name, [each for each in samples if each.seconds >= seconds / 4]) for name, samples in looks.items()
    ]
    if chosen.plot:
        draw(looks, chosen.plot)
    print(f"{chosen.minutes:g} minutes: " + ", ".join(f"{count:,} {what}" for what, count in load.done.items()))
    print("\n".join(map(str, found)))
    print(f"{left} sessions left open when all were closed")
    print("\n".join(["what should not have been:", *load.surprises] if load.surprises else ["no surprises"]))
    return 0 if all(each.is_steady for each in found) and not left and not load.surprises else 1


def draw(looks: dict[str, list[Sample]], path: str) -> None:
    """Memory of each process over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for name, samples in looks.items():
        axes.plot([each.seconds / 60 for each in samples], [each.rss / (1 << 20) for each in samples], label=name)
    axes.set(xlabel="minutes", ylabel="MiB of memory", title="Memory under full load", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
