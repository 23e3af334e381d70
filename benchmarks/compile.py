"""What compiling costs over gRPC: a grammar that is compiled already, a new one beside its engine's own time, and a
step of somebody else's session while hostile grammars come in.

Cold: distinct ordinary schemas, SmolLM2's vocabulary; the whole CompileGrammar call (wire, queue, the disposable child
that compiles and probes first) less the time that the engine took in the daemon. Warm: the same calls again. The attack
is the whole hostile corpus, two grammars at a time, each also driven 50 steps, by a process of a lower priority than
the daemon's, since an attacker has a machine of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from constraintd_client import ConstraintClient, regex
from constraintd_client.mask import allowed_ids
from constraintd_runner.model.fetch import fetch_smollm2

from benchmarks.form import Progress, Result
from benchmarks.processes import daemon_process
from constraintd.v1 import constraint_service_pb2_grpc, grammar_pb2

NAME = "compile"
SUMMARY = "CompileGrammar over gRPC, warm and cold, and others' steps under attack"

_SESSIONS = 8
_FLAGS = ("--max-grammar-bytes", str(16 << 20))  # the corpus has texts of 10 MB
_DECODE_SECONDS = 0.005  # between one step and the next, as a model's forward pass would be


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much of it."""
    parser.add_argument("--schemas", type=int, default=100, metavar="N", help="new schemas to compile [%(default)s]")
    parser.add_argument("--quiet-seconds", type=float, default=20.0, metavar="S", help="before and after [%(default)g]")


def run(progress: Progress, *, schemas: int = 100, quiet_seconds: float = 20.0) -> Result:
    """Warm and cold calls, then others' step times without and with an attack."""
    folder = fetch_smollm2()
    samples: dict[str, list[float]] = {}
    with daemon_process(*_FLAGS) as address, ConstraintClient(address) as client:
        vocabulary = client.register_vocabulary(
            "tokenizer_json", folder / "tokenizer.json", generation_config=folder / "generation_config.json"
        )
        with grpc.insecure_channel(address) as channel:
            stub = constraint_service_pb2_grpc.ConstraintServiceStub(channel)
            requests = [
                grammar_pb2.CompileGrammarRequest(
                    vocabulary_id=vocabulary.vocabulary_id,
                    grammar=grammar_pb2.Grammar(json_schema=json.dumps(_schema(i)).encode()),
                )
                for i in range(schemas + 1)
            ]
            stub.CompileGrammar(requests.pop())  # the connection's own first call
            cold, engine, warm = [], [], []
            for done, request in enumerate(requests):
                progress("new schemas", done, schemas)
                began = time.perf_counter()
                answer = stub.CompileGrammar(request)
                cold.append((time.perf_counter() - began) * 1e3)
                engine.append(answer.compile_us / 1e3)
            for request in requests * 5:
                began = time.perf_counter()
                stub.CompileGrammar(request)
                warm.append((time.perf_counter() - began) * 1e3)
        samples |= {"warm_ms": warm, "cold_ms": cold, "engine_ms": engine}
        samples["cold_over_engine_ms"] = [whole - own for whole, own in zip(cold, engine, strict=True)]
        width = vocabulary.logits_width
        progress("steps, quiet", 0, 3)
        quiet_before = _steps(client, vocabulary.vocabulary_id, width, _for_seconds(quiet_seconds))
        progress("steps, attacked; a minute or two", 1, 3)
        with _attack(address) as is_over:
            samples["attacked_step_ms"] = _steps(client, vocabulary.vocabulary_id, width, is_over)
        progress("steps, quiet", 2, 3)
        quiet_after = _steps(client, vocabulary.vocabulary_id, width, _for_seconds(quiet_seconds))
        samples["quiet_step_ms"] = quiet_before + quiet_after
        progress("done", 3, 3)
    quiet, attacked = _p99(samples["quiet_step_ms"]), _p99(samples["attacked_step_ms"])
    figures = {
        "warm_ms_p50": statistics.median(samples["warm_ms"]),
        "cold_ms_p50": statistics.median(samples["cold_ms"]),
        "cold_over_engine_ms_p50": statistics.median(samples["cold_over_engine_ms"]),
        "quiet_step_ms_p99": quiet,
        "attacked_step_ms_p99": attacked,
        "attacked_over_quiet_p99": attacked / quiet,
    }
    return Result(figures, samples)


def _schema(number: int) -> dict[str, object]:
    """An ordinary schema, no two of them alike: a record with some nested parts."""
    rng = random.Random(number)
    leaves: list[dict[str, object]] = [
        {"type": "string", "maxLength": 40},
        {"type": "integer", "minimum": 0},
        {"type": "number"},
        {"type": "boolean"},
        {"enum": ["new", "open", "closed"]},
        {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        {"type": ["string", "null"]},
    ]

    def record(depth: int) -> dict[str, object]:
        properties = {f"field_{number}_{i}": rng.choice(leaves) for i in range(rng.randint(3, 7))}
        if depth:
            properties[f"part_{number}"] = record(depth - 1)
            properties[f"list_{number}"] = {"type": "array", "items": record(0), "maxItems": 8}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:3],
            "additionalProperties": False,
        }

    return record(rng.randint(1, 2))


def _for_seconds(seconds: float) -> Callable[[], bool]:
    """Whether that time is over."""
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() > ends


def _steps(client: ConstraintClient, vocabulary_id: str, logits_width: int, is_over: Callable[[], bool]) -> list[float]:
    """Milliseconds from sending a batch of steps to having the answer, one sample a session and batch."""
    grammar = client.compile_grammar(vocabulary_id, regex("[a-z ]+"))
    sessions = [client.open_session(vocabulary_id, grammar) for _ in range(_SESSIONS)]
    took = []
    stream = client.decode_stream(vocabulary_id, logits_width)
    token = int(allowed_ids(sessions[0].directive.mask)[0])
    while not is_over():
        time.sleep(_DECODE_SECONDS)
        began = time.perf_counter()
        stream.send([(session, [token], [0.0]) for session in sessions])
        for session in sessions:
            stream.take(session, 30.0)
            took.append((time.perf_counter() - began) * 1e3)
    for session in sessions:
        client.close_session(session.session_id)
    return took


@contextmanager
def _attack(address: str) -> Iterator[Callable[[], bool]]:
    """The hostile corpus, sent once by another process; whether all of it has been answered."""
    command = ["nice", "-n", "10", sys.executable, "-m", "tests.fault.hostile_grammars", "--address", address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2.0)  # until it has started and registered its vocabulary
        if process.poll() is not None:
            raise RuntimeError("the attack did not start; run `python -m tests.fault.hostile_grammars` to see why")
        yield lambda: process.poll() is not None
        if process.returncode != 0:
            raise RuntimeError("the attack did not come to its end; run `python -m tests.fault.hostile_grammars`")
    finally:
        process.kill()
        process.wait()


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
