"""What a live daemon and a live runner export: well-formed, as documented, and what really happened."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from constraintd_client import (
    ConstraintClient,
    ConstraintdError,
    Delta,
    GenerationClient,
    InvalidField,
    InvalidGrammar,
    LimitExceeded,
    SessionHandle,
    UnknownSession,
    choice,
    compile_limits,
    greedy,
    json_schema,
    regex,
    sampler_config,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from constraintd.v1 import constraint_service_pb2, session_pb2
from tests.daemon_process import (
    BYTE_TABLE,
    EOG,
    WIDTH,
    daemon_process,
    open_request,
    register_bytes,
    step_message,
    stub_for,
)
from tests.daemon_process import regex as regex_message
from tests.killable_daemon import KillableDaemon
from tests.runner_process import runner_process
from tests.tiny_decoder import write_genai_folder

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# Needs trouble that these tests don't make: tests/unit/metrics/test_measured_store.py does.
QUIET = {"constraintd_store_errors_total"}


def free_address() -> str:
    """A loopback address that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def page(address: str, accept: str = "text/plain") -> str:
    """The metrics, as served."""
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


class Reading:
    """One scrape: `reading("name", label="value")` sums the samples of that name that have these labels."""

    def __init__(self, address: str) -> None:
        self._samples = [sample for family in text_families(page(address)) for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        return sum(
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        )


def eventually(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Waits until it does, and fails if it does not."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Plant:
    """A daemon and a runner, with the addresses of their metrics."""

    daemon: str
    daemon_metrics: str
    runner: str
    runner_metrics: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_genai_folder(tmp_path_factory.mktemp("genai"))


@pytest.fixture(scope="module")
def plant(tmp_path_factory, folder):
    store = f"sqlite:{tmp_path_factory.mktemp('store')}/sessions.sqlite"
    to = free_address()
    with daemon_process("--store", store, "--metrics-listen", to) as daemon:
        at = free_address()
        with runner_process(folder, daemon, "--slots", "2", "--metrics-listen", at) as runner:
            yield Plant(daemon, to, runner, at)


@pytest.fixture
def runner(plant):
    with GenerationClient(plant.runner) as client:
        yield client


@pytest.fixture
def client(plant):
    with ConstraintClient(plant.daemon, timeout=60) as client:
        yield client


@pytest.fixture
def stub(plant):
    channel, stub = stub_for(plant.daemon)
    with channel:
        yield stub


def test_a_generation_is_counted_at_both(plant, runner):
    daemon, there = Reading(plant.daemon_metrics), Reading(plant.runner_metrics)
    generation = runner.generate("It was ", constraint=regex("[a-z]{40}"), sampler=sampler_config(greedy())).wait()
    tokens = generation.usage.completion_tokens
    assert tokens >= 20
    daemon_after, there_after = Reading(plant.daemon_metrics), Reading(plant.runner_metrics)

    def more(name: str, **labels: str) -> float:
        before, after = (daemon, daemon_after) if "_runner_" not in name else (there, there_after)
        return after(name, **labels) - before(name, **labels)

    assert more("constraintd_step_seconds_count") == tokens
    assert more("constraintd_batch_steps_sum") == tokens
    assert more("constraintd_batch_steps_count") == tokens  # the only generation in its batch
    assert more("constraintd_store_append_seconds_count", backend="sqlite") == tokens
    assert more("constraintd_mask_seconds_count") >= tokens
    assert tokens - 1 <= more("constraintd_advance_seconds_count") <= tokens  # a terminal one moves nothing
    assert more("constraintd_call_seconds_count", method="OpenSession") == 1
    assert more("constraintd_compile_seconds_count") == more("constraintd_grammar_cache_misses_total") == 1
    assert more("constraintd_errors_total") == 0
    first = 60  # at most: the Directive of OpenSession came beside the stream
    wire = more("constraintd_wire_bytes_total")
    assert (
        0 < more("constraintd_wire_bytes_total", direction="in") < more("constraintd_wire_bytes_total", direction="out")
    )
    assert abs(wire - generation.usage.wire_bytes) < 30 * tokens + first
    assert more("constraintd_runner_tokens_total") == tokens
    assert more("constraintd_runner_mask_wait_seconds_count") == tokens
    assert more("constraintd_runner_sampling_seconds_count") == tokens
    assert more("constraintd_runner_prompt_tokens_total") == generation.usage.prompt_tokens
    assert more("constraintd_runner_forward_seconds_count", phase="prefill") == 1
    passes = more("constraintd_runner_forward_seconds_count", phase="decode")
    assert tokens - 1 <= passes <= tokens
    assert more("constraintd_runner_batch_sequences_sum") == passes
    assert more("constraintd_runner_generations_total", finish=generation.finish.reason) == 1
    assert more("constraintd_runner_generations_total") == 1
    assert there_after("constraintd_runner_slots") == 2
    assert there_after("constraintd_runner_slots_used") == there_after("constraintd_runner_queue") == 0


def test_histograms_hold_together(plant, runner):
    runner.generate("It was ", constraint=choice(["yes", "no"]), sampler=sampler_config(greedy())).wait()
    checked = 0
    for address in (plant.daemon_metrics, plant.runner_metrics):
        for family in text_families(page(address)):
            if family.type != "histogram":
                continue
            series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
            counts = {}
            for sample in family.samples:
                labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                if sample.name.endswith("_bucket"):
                    series.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
                elif sample.name.endswith("_count"):
                    counts[labels] = sample.value
            for labels, buckets in series.items():
                assert buckets == sorted(buckets), family.name
                assert [count for _, count in buckets] == sorted(count for _, count in buckets), family.name
                assert buckets[-1] == (float("inf"), counts[labels]), family.name
                checked += 1
    assert checked > 20


def test_refusals_are_counted_by_method_and_reason(plant, client, runner):
    before, there = Reading(plant.daemon_metrics), Reading(plant.runner_metrics)
    vocabulary = client.register_vocabulary("token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG])
    with pytest.raises(InvalidGrammar):
        client.open_session(vocabulary.vocabulary_id, regex("(never closed"))
    with pytest.raises(UnknownSession):
        client.get_session(bytes(16))
    stranger = SessionHandle(bytes(16), 1, 1, client.open_session(vocabulary.vocabulary_id, regex("a+")).directive)
    with client.decode_stream(vocabulary.vocabulary_id, WIDTH) as stream:
        stream.send([(stranger, (97,), (0.0,), ())])
        with pytest.raises(UnknownSession):
            stream.take(stranger, 10.0)
        assert Reading(plant.daemon_metrics)("constraintd_streams") >= 1
    with pytest.raises(InvalidGrammar):
        runner.generate("x", constraint=regex("(never closed"), sampler=sampler_config(greedy())).wait()
    with pytest.raises(InvalidField):
        runner.resume(b"short").wait()
    after, there_after = Reading(plant.daemon_metrics), Reading(plant.runner_metrics)

    def more(method: str, reason: str) -> float:
        name = "constraintd_errors_total"
        return after(name, method=method, reason=reason) - before(name, method=method, reason=reason)

    assert more("OpenSession", "INVALID_GRAMMAR") == 2  # one of them the runner's
    assert more("GetSession", "UNKNOWN_SESSION") == 1
    assert more("Decode", "UNKNOWN_SESSION") == 1
    refused = [
        at("constraintd_compile_refusals_total", reason="INVALID_GRAMMAR", limit="none") for at in (before, after)
    ]
    assert refused[1] - refused[0] == 2
    for method, reason in (("Generate", "INVALID_GRAMMAR"), ("ResumeGeneration", "INVALID_FIELD")):
        name = "constraintd_runner_errors_total"
        assert there_after(name, method=method, reason=reason) - there(name, method=method, reason=reason) == 1


def test_a_child_that_takes_too_long_is_counted_with_its_limit(plant, client):
    vocabulary = client.register_vocabulary("token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG])
    wide = {f"property {number}": {"type": "string"} for number in range(3000)}
    large = json_schema({"type": "object", "properties": wide, "additionalProperties": False})
    with pytest.raises(LimitExceeded):
        client.compile_grammar(vocabulary.vocabulary_id, large, limits=compile_limits(seconds=0.05))
    now = Reading(plant.daemon_metrics)
    assert now("constraintd_compile_refusals_total", reason="LIMIT_EXCEEDED", limit="seconds") == 1


@pytest.mark.parametrize("address", ["9464", "unix:/tmp/metrics.sock", "127.0.0.1:99999"])
@pytest.mark.parametrize("program", ["constraintd.cli", "constraintd_runner.cli"])
def test_an_address_that_is_none_ends_the_start_with_what_would_do(program, address, folder, plant):
    more = ["--store", "memory"] if program == "constraintd.cli" else ["--model", str(folder), "--daemon", plant.daemon]
    command = [sys.executable, "-m", program, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", address, *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert repr(address) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_hostile_texts_reach_no_label_and_no_page(plant, client, runner):
    marker = "zebra_crossing"
    hostile = f'{marker}"}} 1\nconstraintd_forged_total 1\n#'
    with suppress(ConstraintdError):
        client.open_session(hostile, regex(f"({hostile}"))
    with suppress(ConstraintdError):
        runner.generate(hostile, constraint=regex(f"({hostile}"), sampler=sampler_config(greedy())).wait()
    for address in (plant.daemon, plant.runner):
        with grpc.insecure_channel(address) as channel:
            for number in range(50):
                for service in ("constraintd.v1.ConstraintService", "constraintd.runner.v1.GenerationService", "x"):
                    with pytest.raises(grpc.RpcError):
                        channel.unary_unary(f"/{service}/{marker}{number}")(b"", timeout=10)
    for address in (plant.daemon_metrics, plant.runner_metrics):
        text = page(address)
        assert marker not in text
        assert "forged" not in text
        # Hidden in no label value either: those that count what clients do are RPCs and reasons.
        for family in text_families(text):
            for sample in family.samples:
                for label in ("method", "reason"):
                    assert re.fullmatch(r"[A-Za-z_]*", sample.labels.get(label, ""))


def test_a_failed_and_a_cancelled_generation_are_told_apart(plant, runner):
    before = Reading(plant.runner_metrics)
    endless = runner.generate("x", constraint=regex("[a-z]+"), sampler=sampler_config(greedy(), min_tokens=1500))
    for event in endless.events():
        if isinstance(event, Delta):
            break
    assert Reading(plant.runner_metrics)("constraintd_runner_slots_used") == 1
    endless.cancel()

    def more(finish: str) -> float:
        name = "constraintd_runner_generations_total"
        return Reading(plant.runner_metrics)(name, finish=finish) - before(name, finish=finish)

    eventually(lambda: more("CANCELLED") == 1)
    assert more("FAILED") == 0


def test_sessions_fall_asleep_and_are_revived(tmp_path):
    to = free_address()
    arguments = ["--store", f"sqlite:{tmp_path}/sessions.sqlite", "--session-passive-seconds", "1"]
    with daemon_process(*arguments, "--metrics-listen", to) as address:
        channel, stub = stub_for(address)
        with channel:
            vocabulary_id = register_bytes(stub)
            request = open_request(vocabulary_id, regex_message("a+"))
            epoch = stub.OpenSession(request).epoch
            for position in range(70):
                step = step_message(request.session_id, epoch, position, [97])
                stub.Step(session_pb2.StepRequest(step=step))
            now = Reading(to)
            assert now("constraintd_sessions", state="hot") == 1
            assert now("constraintd_sessions", state="passive") == 0
            assert now("constraintd_call_seconds_count", method="Step") == 70
            eventually(lambda: Reading(to)("constraintd_session_passivations_total") == 1)
            now = Reading(to)
            assert now("constraintd_sessions", state="hot") == 0
            assert now("constraintd_sessions", state="passive") == 1
            # A log of more than 64 records is folded in a thread: its first step takes the slow lane, the next doesn't.
            for lane, position in (("slow", 70), ("quick", 71)):
                answers = decoded(stub, vocabulary_id, step_message(request.session_id, epoch, position, [97]))
                assert [answer.directive.position for answer in answers] == [position + 1]
                assert Reading(to)("constraintd_step_seconds_count", lane=lane) == 1
            eventually(lambda: Reading(to)("constraintd_session_revivals_total") == 1)
            now = Reading(to)
            assert now("constraintd_step_seconds_count") == 2
            assert now("constraintd_sessions", state="hot") == 1
            assert now("constraintd_streams") == 0


def decoded(stub, vocabulary_id, *steps):
    """All answers to one batch on a stream of its own."""
    hello = constraint_service_pb2.Hello(vocabulary_id=vocabulary_id, logits_width=WIDTH)
    batch = constraint_service_pb2.StepBatch(steps=steps)
    messages = [
        constraint_service_pb2.DecodeRequest(hello=hello),
        constraint_service_pb2.DecodeRequest(step_batch=batch),
    ]
    return [answer for response in stub.Decode(iter(messages)) for answer in response.directive_batch.answers]


def test_a_broken_stream_and_a_taken_up_session_are_counted(tmp_path, folder):
    at = free_address()
    with KillableDaemon(tmp_path, f"sqlite:{tmp_path}/sessions.sqlite") as daemon:
        with runner_process(folder, daemon.address, "--metrics-listen", at) as address:
            with GenerationClient(address) as runner:
                sampler = sampler_config(greedy(), min_tokens=400, max_tokens=400)
                generation = runner.generate("x", constraint=regex("[a-z]*"), sampler=sampler, resumable=True)
                for _, event in zip(range(20), generation.events(), strict=False):
                    assert event
                daemon.restart()
                generation.wait()
                assert len(generation.token_ids) == 400
                now = Reading(at)
                assert now("constraintd_runner_reconnects_total", outcome="opened") >= 1
                assert now("constraintd_runner_tokens_total") == 400
                assert now("constraintd_runner_resumes_total") == 0
                assert runner.resume(generation.session_id).wait().token_ids == generation.token_ids
                assert Reading(at)("constraintd_runner_resumes_total") == 1


@pytest.mark.parametrize(
    ("accept", "families"),
    [("text/plain", text_families), (OPENMETRICS, openmetrics_families)],
    ids=["text", "openmetrics"],
)
def test_both_formats_are_well_formed(plant, accept, families):
    for address in (plant.daemon_metrics, plant.runner_metrics):
        text = page(address, accept)
        names = [family.name for family in families(text)]
        assert len(names) == len(set(names)) > 15
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        assert len(samples) == len({line.rpartition(" ")[0] for line in samples}), "a series is there twice"


# --- docs/metrics.md; last, when everything that is documented has happened ---


def documented() -> dict[str, tuple[str, set[str]]]:
    """Type and labels by name, as the tables have them."""
    rows = {}
    for line in DOCS.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0].startswith("`constraintd_"):
            name, kind, unit, labels, meaning = cells
            assert unit, line
            assert meaning, line
            assert name not in rows, line
            rows[name.strip("`")] = kind, {label.strip("` ") for label in labels.split(",") if label}
    return rows


def test_the_docs_name_every_metric_with_its_type_and_labels(plant):
    found = {}
    for address in (plant.daemon_metrics, plant.runner_metrics):
        for family in text_families(page(address)):
            if family.name.startswith("process_"):
                continue
            assert family.documentation.endswith("."), family.name
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            assert family.samples or name in QUIET, f"{name} was never counted"
            found[name] = family.type, labels
    rows = documented()
    assert set(found) == set(rows)
    for name, (kind, labels) in found.items():
        assert kind == rows[name][0], name
        assert labels == rows[name][1] or name in QUIET, name


def test_units_are_base_units_and_said_in_the_name():
    for name, (kind, _) in documented().items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert re.fullmatch(r"constraintd_(runner_)?[a-z_]+", name)
        assert not re.search(r"_(ms|us|millis|micros|kb|mb|percent|ratio)(_|$)", name), name
        if kind == "histogram":
            assert name.endswith(("_seconds", "_steps", "_sequences")), name


def test_the_alerts_ask_for_metrics_that_there_are():
    alerts = DOCS.read_text().partition("```yaml")[2].partition("```")[0]
    asked = set(re.findall(r"constraintd_[a-z_]+", re.sub("#.*", "", alerts)))
    assert len(re.findall("alert:", alerts)) == 3
    assert len(asked) == 3
    assert {name.removesuffix("_bucket") for name in asked} <= set(documented())
