"""Lets the conformance cases drive the Python client: a request a line on stdin, an answer a line on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from .daemon_calls import DAEMON_CALLS
from .generations import GENERATION_CALLS
from .held import Held
from .sampling_calls import SAMPLING_CALLS, STAGES
from .spelled import refusal
from .streams import STREAM_CALLS

CALLS: Final[Mapping[str, Callable[[Held, Mapping[str, Any]], Any]]] = {
    "hello": lambda _held, _request: {"language": "python", "stages": STAGES, "features": ["retryable"]},
    "reset": lambda held, _request: held.reset(),
    **DAEMON_CALLS,
    **STREAM_CALLS,
    **SAMPLING_CALLS,
    **GENERATION_CALLS,
}


def main() -> None:
    """Answers until stdin ends."""
    held = Held()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": CALLS[request["op"]](held, request) or {}}
        except Exception as error:  # whatever the client raises is what the case is about
            answer = {"error": refusal(error)}
        print(json.dumps(answer, allow_nan=False), flush=True)
    held.reset()


if __name__ == "__main__":
    main()
