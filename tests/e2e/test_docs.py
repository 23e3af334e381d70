"""Every code block of README.md and docs/*.md does what its page says.

`python` blocks run against a live daemon and a live runner of a tiny model, `sh` blocks in bash, those of one page in
order and together; `toml`, `yaml` and `json` blocks are read by what reads them in earnest. A block `text output` is
what the block before it prints, exactly. A block that can't run here says why behind its language:
"sh not-run: needs a cluster".
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from constraintd_client import Directive, LogitAdjustments
from constraintd_runner.sampling import Adjustments, Chain

from constraintd.config import ENVIRONMENT_PREFIX, Config
from constraintd.serving.settings import load
from constraintd.v1 import error_pb2
from tests.daemon_process import daemon_process
from tests.runner_process import runner_process
from tests.tiny_decoder import write_genai_folder

REPOSITORY = Path(__file__).parents[2]
PAGES = {str(path.relative_to(REPOSITORY)): path for path in (REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md"))}
LANGUAGES = {"python", "sh", "toml", "yaml", "json", "text"}

# Why blocks don't run here: all of them, so that none is added unseen.
REASONS = {
    "a test suite within a test suite",
    "makes a virtual environment",
    "needs a cluster",
    "needs Docker",
    "needs Go and builds it; clients/go's own tests run the example",
    "needs npm and its packages; clients/typescript's own tests run the example",
    "needs redis-server and Envoy; tests/e2e/test_replicas.py runs the same",
}
# Blocks of pages that are read as they stand, by the block's first words.
UNMARKED = {("README.md", "make demo"): "a test suite within a test suite"}

DAEMON, RUNNER = "unix:/tmp/constraintd.sock", "unix:/tmp/runner.sock"


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    note: str
    text: str

    @property
    def not_run(self) -> str | None:
        """Why it does not run; None if it does."""
        for (page, beginning), reason in UNMARKED.items():
            if self.page == page and self.text.startswith(beginning):
                return reason
        return self.note.removeprefix("not-run: ") if self.note.startswith("not-run: ") else None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    """A page's fenced blocks. Raises ValueError for a fence that is not closed."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(PAGES[page].read_text().splitlines(), 1):
        if not line.lstrip().startswith("```"):
            inside.append(line)
        elif opened is None:
            opened, inside = (number, line.strip().removeprefix("```")), []
        else:
            language, _, note = opened[1].partition(" ")
            found.append(Block(page, opened[0], language, note, "\n".join(inside) + "\n"))
            opened = None
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: the block is not closed")
    return found


def runnable(page: str, language: str) -> list[tuple[Block, str | None]]:
    """A page's blocks that run, each with the output that the page says it has."""
    blocks = blocks_of(page)
    following: list[Block | None] = [*blocks[1:], None]
    return [
        (block, after.text if after is not None and (after.language, after.note) == ("text", "output") else None)
        for block, after in zip(blocks, following, strict=False)
        if block.language == language and block.not_run is None
    ]


def pages_with(language: str) -> list[str]:
    return [page for page in sorted(PAGES) if runnable(page, language)]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """An empty folder that looks like the repository, with a short name, since Unix sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="docs-", dir="/tmp") as name:
        folder = Path(name)
        for path in ("clients", "deploy", "docs", "examples", "proto", "README.md"):
            (folder / path).symlink_to(REPOSITORY / path)
        (folder / ".venv").symlink_to(sys.prefix)
        yield folder


@pytest.fixture(scope="module")
def model(scratch: Path) -> Path:
    return write_genai_folder(scratch / "tiny", seed=5)


@pytest.fixture(scope="module")
def servers(model: Path) -> Iterator[dict[str, str]]:
    """What the pages' addresses are here: one daemon and one runner for all pages."""
    with daemon_process() as daemon, runner_process(model, daemon) as runner:
        yield {DAEMON: daemon, RUNNER: runner}


class AnyModel:
    """The pages' `model`: logits of no meaning."""

    def forward(self, *_: object) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.linspace(0.0, 1.0, 49_152, dtype=np.float32)


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run_and_print_what_the_page_says(
    page: str, servers: dict[str, str], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model)  # where a tokenizer.json lies
    names: dict[str, object] = {"__name__": "__main__", "Path": Path, "model": AnyModel()}
    for block, expected in runnable(page, "python"):
        text = block.text
        for address, here in servers.items():
            text = text.replace(address, here)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + text, block.page, "exec"), names)
        if expected is not None:
            assert printed.getvalue() == expected, block.place


@pytest.mark.parametrize("page", pages_with("sh"))
@pytest.mark.usefixtures("smollm2_folder")
def test_sh_blocks_run_and_print_what_the_page_says(page: str, scratch: Path) -> None:
    blocks = runnable(page, "sh")
    script = "set -euo pipefail\n" + "".join(f"echo '@@ {block.place}'\n{waiting(block.text)}" for block, _ in blocks)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-c", script.replace("/tmp/", f"{scratch}/")],
        cwd=scratch,
        env=os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": str(scratch / "state")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    # What the page starts in the background holds the pipe open: bash's own end is waited for, then theirs is made.
    assert process.stdout is not None
    printed: list[str] = []
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=100)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    printed = process.stdout.read().split("@@ ")
    process.wait(timeout=10)
    assert process.returncode == 0, f"bash ended with {process.returncode}:\n{''.join(printed)}"
    outputs = dict(part.split("\n", 1) for part in printed if part)
    for block, expected in blocks:
        assert expected is None or told(outputs[block.place]) == expected, block.place


def waiting(text: str) -> str:
    """A script that waits where a person would: behind the start of a server, until its socket is there."""
    return re.sub(
        r"(?m)^(.*--listen unix:(\S+).*) &$", r"\1 &\nuntil [ -S \2 ]; do kill -0 $! || exit 1; sleep 0.1; done", text
    )


def told(output: str) -> str:
    """An output without what servers in the background say meanwhile."""
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("listening on "))


def test_the_guide_s_runner_picks_what_the_runner_picks(servers: dict[str, str]) -> None:
    names: dict[str, Any] = {}
    for block, _ in runnable("docs/write-your-own-runner.md", "python")[:3]:
        exec(block.text.replace(DAEMON, servers[DAEMON]), names)
    random = np.random.default_rng(11)
    chain = Chain.of([])
    for number in range(300):
        logits = (random.standard_normal(70) * 4).astype(np.float32)
        words = random.integers(0, 1 << 32, 3, dtype=np.uint32)
        words[1] |= 1
        words[0] &= ~np.uint32(1)
        words[2] &= 0b111111
        ids = np.sort(random.choice(70, 9, replace=False)).astype(np.uint32)
        changes = ids, random.uniform(0.5, 2.0, 9), random.normal(size=9)
        draw = random.random() if number % 3 else 0.0  # the least draw never picks a forbidden token
        directive = Directive(0, words, None, None, draw, 0, 0, LogitAdjustments(*changes))
        expected = chain.sample(logits.copy(), words, draw, adjustments=Adjustments(*changes))
        token, surprisal = names["pick"](logits, directive)
        assert token == expected.token
        assert surprisal == pytest.approx(expected.surprisal, abs=1e-9)


def test_the_protocol_page_has_every_reason_with_its_code() -> None:
    table = re.findall(r"(?m)^\| `([A-Z_]+)` \| ([A-Z_]+) \| \S", PAGES["docs/protocol.md"].read_text())
    proto = (REPOSITORY / "proto" / "constraintd" / "v1" / "error.proto").read_text()
    # A value's comment begins with its code.
    commented = re.findall(r"(?m)^  // ([A-Z_]+): [^\n]*\n(?:  //[^\n]*\n)*  ERROR_REASON_([A-Z_]+) =", proto)
    assert len(table) == len(set(table)) == len(error_pb2.ErrorReason.values()) - 1
    assert dict(table) == {reason: code for code, reason in commented}


def test_the_operations_page_watches_metrics_that_there_are() -> None:
    listed = set(re.findall(r"(?m)^\| `(constraintd_\w+)`", PAGES["docs/metrics.md"].read_text()))
    watched = set(re.findall(r"\bconstraintd_(?!client\b)\w+", PAGES["docs/operations.md"].read_text()))
    assert watched
    assert watched <= listed


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in sorted(PAGES) for block in blocks_of(page) if block.language in languages]


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.place)
def test_toml_blocks_are_configs_that_the_programs_take(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(block.text)
    if block.note == "daemon":
        loaded = load(Config, prefix=ENVIRONMENT_PREFIX, flags={}, environment={}, file=str(file))
        loaded.config(prefix=ENVIRONMENT_PREFIX)
        return
    assert block.note == "runner", f"{block.place}: say whose config it is: toml daemon, or toml runner"
    command = [sys.executable, "-m", "constraintd_runner.cli", "config", "show", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", all_blocks("yaml", "json"), ids=lambda block: block.place)
def test_yaml_and_json_blocks_can_be_read(block: Block) -> None:
    assert json.loads(block.text) if block.language == "json" else list(yaml.safe_load_all(block.text))


def test_every_block_is_in_a_language_that_is_tested() -> None:
    strange = [
        block.place
        for block in all_blocks(*{each.language for page in PAGES for each in blocks_of(page)})
        if block.language not in LANGUAGES
    ]
    assert strange == []


def test_every_block_that_does_not_run_has_one_of_the_known_reasons_and_every_reason_is_used() -> None:
    given = {block.not_run: block.place for block in all_blocks("sh", "python") if block.not_run is not None}
    assert set(given) == REASONS, given


def test_the_targets_and_files_that_blocks_name_are_there_also_where_the_block_does_not_run() -> None:
    for block in all_blocks("sh"):
        for folder, target in re.findall(r"\bmake (?:-C (\S+) )?([a-z-]+)", block.text):
            makefile = REPOSITORY / folder / "Makefile"
            assert re.search(rf"(?m)^{target}:", makefile.read_text()), f"{block.place}: {makefile} has no {target}"
        programs = [f"{folder}/{path}" for folder, path in re.findall(r"\bgo -C (\S+) run (\S+)", block.text)]
        for path in [*programs, *re.findall(r"\bdeploy/[\w./-]+", block.text)]:
            assert (REPOSITORY / path).exists(), f"{block.place}: {path}"


def test_an_output_stands_right_behind_a_block_that_runs() -> None:
    for page in PAGES:
        blocks = blocks_of(page)
        for before, block in zip([None, *blocks], blocks, strict=False):
            if (block.language, block.note) == ("text", "output"):
                assert before is not None, block.place
                assert before.language in ("python", "sh"), block.place
                assert before.not_run is None, block.place


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_link_of_a_page_leads_to_a_file(page: str) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", PAGES[page].read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (PAGES[page].parent / path).resolve() if path else PAGES[page]
        assert file.exists(), f"{page}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page}: {target}"


def anchors(file: Path) -> set[str]:
    """Of a page's headings, as they are made of their words."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", file.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
