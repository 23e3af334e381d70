"""The daemon's unary calls, and what a case does to a handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from constraintd_client import ConstraintClient, SamplerConfig, SessionHandle, Tls
from google.protobuf import json_format

from constraintd.v1 import grammar_pb2, session_pb2

from . import spelled
from .held import Held

Request = Mapping[str, Any]


def access(request: Request) -> dict[str, Any]:
    """How a client shows who it is, as keywords of its constructor."""
    files = {key: Path(path) for key, path in request.get("tls", {}).items()}
    return {
        "timeout": request.get("timeout_ms", 30_000) / 1000,
        "tls": Tls(files.get("ca"), files.get("cert"), files.get("key")) if files else None,
        "token": request.get("token"),
    }


def sampler_of(request: Request) -> SamplerConfig | None:
    """The request's sampler config, if it has one."""
    if "sampler" not in request:
        return None
    return json_format.ParseDict(request["sampler"], SamplerConfig())


def constraint_of(request: Request) -> session_pb2.Constraint:
    """The request's constraint."""
    return json_format.ParseDict(request["constraint"], session_pb2.Constraint())


def _connect(held: Held, request: Request) -> None:
    held.daemons[request.get("client", "main")] = ConstraintClient(request["targets"], **access(request))


def _register(held: Held, request: Request) -> dict[str, Any]:
    info = held.daemon(request).register_token_table(
        [None if token is None else bytes.fromhex(token) for token in request["tokens"]],
        special={int(token): spelling for token, spelling in request["special"].items()},
        eog_ids=request["eog_ids"],
        logits_width=request["logits_width"],
    )
    return {
        "vocabulary_id": info.vocabulary_id,
        "token_count": info.token_count,
        "logits_width": info.logits_width,
        "eog_ids": list(info.eog_ids),
        "has_encoder": info.has_encoder,
    }


def _token_table(held: Held, request: Request) -> dict[str, Any]:
    table = held.daemon(request).token_table(request["vocabulary_id"])
    return {
        "tokens": [token.hex() for token in table.tokens],
        "special": {str(token): spelling for token, spelling in table.special.items()},
        "text": table.text(request["spell"]).hex(),
    }


def _compile(held: Held, request: Request) -> dict[str, Any]:
    grammar = json_format.ParseDict(request["grammar"], grammar_pb2.Grammar())
    client = held.daemon(request)
    report = client.compile_report(request["vocabulary_id"], grammar)
    return {
        "grammar_id": client.compile_grammar(request["vocabulary_id"], grammar),
        "report": [[each.pointer, each.keyword, each.verdict] for each in report],
    }


def _open(held: Held, request: Request) -> dict[str, Any]:
    handle = held.daemon(request).open_session(
        request["vocabulary_id"],
        constraint_of(request),
        sampler=sampler_of(request),
        prompt_tokens=request.get("prompt_tokens", ()),
        session_id=bytes.fromhex(request["session_id"]),
    )
    held.sessions[request["session"]] = handle
    return spelled.session(handle)


def _handle(held: Held, request: Request) -> dict[str, Any]:
    known = held.sessions[request["of"]]
    position = request.get("position", known.position)
    held.sessions[request["session"]] = handle = SessionHandle(
        known.session_id,
        int(request.get("epoch", known.epoch)),
        known.seed,
        replace(known.directive, position=position),
        known.sampler,
    )
    return spelled.session(handle)


def _step(held: Held, request: Request) -> dict[str, Any]:
    handle = held.session(request)
    held.daemon(request).step(handle, request["tokens"], request["surprisals"], request.get("passes", ()))
    return spelled.session(handle)


def _changes(request: Request) -> dict[str, Any]:
    return {
        "seed": int(request["seed"]) if "seed" in request else None,
        "request_id": bytes.fromhex(request["request_id"]) if "request_id" in request else None,
    }


def _update(held: Held, request: Request) -> dict[str, Any]:
    handle = held.session(request)
    held.daemon(request).update_session(
        handle,
        constraint=constraint_of(request) if "constraint" in request else None,
        sampler=sampler_of(request),
        new_turn=request.get("new_turn"),
        **_changes(request),
    )
    return spelled.session(handle)


def _rollback(held: Held, request: Request) -> dict[str, Any]:
    handle = held.session(request)
    held.daemon(request).rollback_session(handle, request["to_position"], **_changes(request))
    return spelled.session(handle)


def _fork(held: Held, request: Request) -> dict[str, Any]:
    handle = held.daemon(request).fork_session(
        held.sessions[request["of"]].session_id,
        request["position"],
        new_session_id=bytes.fromhex(request["session_id"]),
        seed=_changes(request)["seed"],
    )
    held.sessions[request["session"]] = handle
    return spelled.session(handle)


def _resume(held: Held, request: Request) -> dict[str, Any]:
    resumed = held.daemon(request).resume_session(bytes.fromhex(request["session_id"]))
    held.sessions[request["session"]] = resumed.session
    return {
        **spelled.session(resumed.session),
        "vocabulary_id": resumed.vocabulary_id,
        "turns": [[turn.position, list(turn.prompt_tokens)] for turn in resumed.turns],
        "tokens": list(resumed.tokens),
        "passes": list(resumed.passes),
        "model_input": resumed.model_input(),
    }


def _export(held: Held, request: Request) -> dict[str, Any]:
    return {"envelope": held.daemon(request).export_session(held.session(request).session_id).hex()}


def _import(held: Held, request: Request) -> dict[str, Any]:
    handle = held.daemon(request).import_session(bytes.fromhex(request["envelope"]))
    held.sessions[request["session"]] = handle
    return spelled.session(handle)


def _close(held: Held, request: Request) -> dict[str, Any]:
    return {"closed": held.daemon(request).close_session(held.session(request).session_id)}


def _get(held: Held, request: Request) -> dict[str, Any]:
    known = held.daemon(request).get_session(held.session(request).session_id)
    return {"tokens": list(known.tokens), "surprisals": list(known.surprisals), "position": known.session.position}


def _list(held: Held, request: Request) -> dict[str, Any]:
    return {"session_ids": [each.session_id.hex() for each in held.daemon(request).list_sessions()]}


DAEMON_CALLS: Final[Mapping[str, Callable[[Held, Request], Any]]] = {
    "connect": _connect,
    "register": _register,
    "token_table": _token_table,
    "compile": _compile,
    "open": _open,
    "handle": _handle,
    "step": _step,
    "update": _update,
    "rollback": _rollback,
    "fork": _fork,
    "resume": _resume,
    "export": _export,
    "import": _import,
    "close": _close,
    "get": _get,
    "list": _list,
}
