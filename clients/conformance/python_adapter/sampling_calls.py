"""Masks on arrays, and the pick: the client's `apply_mask`, and the sampling package of Python's runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from constraintd_client import Directive, LogitAdjustments, SamplerConfig, allowed_ids, apply_mask
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampler_config import chain_of
from google.protobuf import json_format
from numpy.typing import NDArray

from . import spelled
from .held import Held

Request = Mapping[str, Any]

STAGES: Final = (
    *("greedy", "temperature", "top_k", "top_p", "min_p", "typical_p", "tail_free", "split_p", "split_l"),
    *("mirostat_v1", "mirostat_v2", "logit_bias"),
)


def _row(request: Request) -> NDArray[np.float32]:
    return np.array([float(value) for value in request["logits"]], dtype=np.float32)


def _words(request: Request) -> NDArray[np.uint32]:
    return np.frombuffer(bytes.fromhex(request["mask"]), "<u4")


def _mask(_held: Held, request: Request) -> dict[str, Any]:
    logits, words = _row(request), _words(request)
    apply_mask(logits, words)
    return {"logits": [spelled.number(value) for value in logits.tolist()], "allowed": allowed_ids(words).tolist()}


def _pick(held: Held, request: Request) -> dict[str, Any]:
    if "session" in request:
        handle = held.session(request)
        assert handle.sampler is not None, "the daemon named no sampler"
        chain, directive = chain_of(handle.sampler), handle.directive
    else:
        chain = chain_of(json_format.ParseDict({"stages": request["stages"]}, SamplerConfig()))
        directive = _made_up(request)
    picked = MaskedPicker(chain).pick(_row(request), directive)
    return {"token": picked.token, "surprisal": picked.surprisal}


def _made_up(request: Request) -> Directive:
    given = request.get("adjustments")
    adjustments = None
    if given is not None and given["ids"]:
        ids = np.array(given["ids"], dtype="<u4")
        adjustments = LogitAdjustments(ids, np.array(given["scales"], "<f8"), np.array(given["offsets"], "<f8"))
    return Directive(
        position=0,
        mask=_words(request),
        finish=None,
        no_token_allowed=None,
        draw=request["draw"],
        settled_bytes=0,
        wire_bytes=0,
        adjustments=adjustments,
        mu=request.get("mu"),
    )


SAMPLING_CALLS: Final[Mapping[str, Callable[[Held, Request], Any]]] = {"mask": _mask, "pick": _pick}
