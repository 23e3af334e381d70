"""An image built without Docker: a Dockerfile's steps, run on this machine's Python into a folder.

What stands in for what: a stage's root is a folder, and the absolute paths that these images use are moved below it;
the base image is this machine, with the Python that runs the tests. A final stage stands where its build stage stood,
so that paths written into files still hold. Run by root, with a Python that everybody may use, processes have the
image's own user, who owns the volumes and nothing else: a write elsewhere fails as on a read-only root. Otherwise they
have this user; `files` before and after tells what was written either way.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.deploy.dockerfile import Instruction, read_dockerfile

_OURS = re.compile(r"(?<![\w./])/(?=(opt|volumes|build|models|var/lib/constraintd|run/constraintd)\b)")
_STEP_SECONDS = 80.0


@dataclass
class Image:
    """A built image: `root` holds its files. Owns them; `processes` of it run in with statements."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    user: int = 0
    workdir: str = "/"
    volumes: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def path(self, text: str) -> str:
        """A text with the image's absolute paths as this machine has them."""
        return _OURS.sub(f"{self.root}/", text)

    def mount(self, volume: str, folder: Path) -> None:
        """Puts a folder in a volume's place."""
        assert volume in self.volumes, f"{volume} is not among the declared volumes {self.volumes}"
        place = Path(self.path(volume))
        place.rmdir()
        place.symlink_to(folder)
        self.give(folder)

    @property
    def runs_as(self) -> int:
        """The user of its processes."""
        python = Path(sys.executable).resolve()
        everybodys = all(folder.stat().st_mode & 0o001 for folder in (python, *python.parents))
        return self.user if os.geteuid() == 0 and everybodys else os.geteuid()

    def give(self, folder: Path) -> None:
        """Makes that user the owner of a folder, and of all that is in it."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.runs_as, -1)

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of every file outside of the volumes."""
        outside = [Path(self.path(volume)) for volume in self.volumes]
        return {
            str(path.relative_to(self.root)): (path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in self.root.rglob("*")
            if not any(path.is_relative_to(volume) for volume in outside)
        }

    @contextmanager
    def process(self, *command: str, log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """The entrypoint, with the image's own command or another, as its user, in its environment and folder."""
        words = [self.path(word) for word in (*self.entrypoint, *(command or self.command))]
        environment = {name: self.path(value) for name, value in (self.env | (env or {})).items()}
        program = shutil.which(words[0], path=environment["PATH"])
        assert program is not None, f"{words[0]} is not in the image's PATH {environment['PATH']}"
        with log.open("w") as stderr:
            running = subprocess.Popen(
                [program, *words[1:]],
                cwd=self.path(self.workdir),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                umask=0o027,
                **({"user": self.user, "group": self.user, "extra_groups": []} if self.runs_as == self.user else {}),
            )
        try:
            yield running
        finally:
            running.kill()
            running.wait()


def build_image(dockerfile: Path, context: Path, folder: Path) -> Image:
    """Runs every step of a Dockerfile. Raises RuntimeError for one that fails, with its line and what it said."""
    named: dict[str, Image] = {}
    image = Image(folder / "image")
    for stage in read_dockerfile(dockerfile):
        image = Image(folder / "image")
        image.root.mkdir(mode=0o755)
        for step in stage.instructions:
            try:
                _run(step, image, context, named)
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                said = error.stderr[-2000:] if isinstance(error, subprocess.CalledProcessError) else ""
                raise RuntimeError(f"{dockerfile.name}:{step.line}: {step.name} failed: {error}\n{said}") from error
        if stage.name:
            image.root = image.root.rename(folder / stage.name)
            named[stage.name] = image
    return image


def _run(step: Instruction, image: Image, context: Path, named: dict[str, Image]) -> None:
    if step.name == "RUN":
        # The tools of the base image: this Python's and its pip.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run(
            ["/bin/sh", "-ec", image.path(step.text)],
            cwd=image.path(image.workdir),
            env=os.environ | {"PATH": path},
            check=True,
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS,
        )
    elif step.name == "COPY":
        *sources, target = step.words
        root = named[step.flags["from"]].root if "from" in step.flags else context
        # What the .dockerignore files keep out of the context.
        ignored = None if "from" in step.flags else shutil.ignore_patterns("__pycache__")
        _copy([root / source.lstrip("/") for source in sources], target, step.flags.get("chown"), image, ignored)
    elif step.name == "ENV":
        image.env |= step.pairs
    elif step.name == "WORKDIR":
        image.workdir = step.text
        Path(image.path(step.text)).mkdir(parents=True, exist_ok=True)
    elif step.name == "USER":
        image.user = int(step.text.split(":")[0])
    elif step.name == "VOLUME":
        image.volumes = tuple(step.words)
        for volume in image.volumes:
            assert Path(image.path(volume)).is_dir(), f"{volume} is declared but was never made"
    elif step.name == "ENTRYPOINT":
        image.entrypoint = tuple(step.words)
    elif step.name == "CMD":
        image.command = tuple(step.words)


def _copy(
    sources: Sequence[Path],
    target: str,
    owner: str | None,
    image: Image,
    ignored: Callable[[str, list[str]], set[str]] | None,
) -> None:
    place = image.root / target.lstrip("/") if target.startswith("/") else Path(image.path(image.workdir)) / target
    for source in sources:
        if source.is_file():
            (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)
            continue
        # A folder's contents, links as links, as COPY has it.
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        if owner is not None and os.geteuid() == 0:
            number = int(owner.split(":")[0])
            for path in (place, *place.rglob("*")):
                os.chown(path, number, number)
