"""A generation's events as messages."""

from __future__ import annotations

from collections.abc import Sequence

from constraintd_client import Finish

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.v1 import session_pb2
from constraintd_runner.generation import GenerationStatistics
from constraintd_runner.sampling import PositionLogprobs


def delta_of(tokens: Sequence[int], text: str, logprobs: PositionLogprobs | None = None) -> pb.GenerateResponse:
    """The event for these tokens and this text."""
    positions = () if logprobs is None else (_position_of(logprobs),)
    return pb.GenerateResponse(delta=pb.Delta(token_ids=tokens, text=text, logprobs=positions))


def _position_of(logprobs: PositionLogprobs) -> pb.PositionLogprobs:
    return pb.PositionLogprobs(
        taken=pb.TokenLogprob(token_id=logprobs.taken.token, logprob=logprobs.taken.logprob),
        top=[pb.TokenLogprob(token_id=each.token, logprob=each.logprob) for each in logprobs.top],
    )


def nothing_done(prompt_tokens: int, wire_bytes: int, completion_tokens: int = 0) -> GenerationStatistics:
    """What a generation took that needed no forward pass here."""
    return GenerationStatistics(prompt_tokens, completion_tokens, 0, 0, (), wire_bytes)


def finished_of(finish: Finish, statistics: GenerationStatistics, answer: pb.ToolAnswer | None) -> pb.GenerateResponse:
    """The last event."""
    message = session_pb2.Finish(
        reason=session_pb2.FinishReason.Value(f"FINISH_REASON_{finish.reason}"),
        stop_string=finish.stop_string,
        stop_id=finish.stop_id,
        cut_offset=finish.cut_offset,
        constraint_incomplete=finish.constraint_incomplete,
        schema_satisfied=finish.schema_satisfied,
        schema_violation=finish.schema_violation,
    )
    usage = pb.Usage(
        prompt_tokens=statistics.prompt_tokens,
        completion_tokens=statistics.completion_tokens,
        prefill_us=statistics.prefill_us,
        decode_us=statistics.decode_us,
        mask_wait_us=statistics.mask_wait_us,
        mask_wait_us_p50=statistics.mask_wait_percentile(50),
        mask_wait_us_p99=statistics.mask_wait_percentile(99),
        wire_bytes=statistics.wire_bytes,
    )
    return pb.GenerateResponse(finished=pb.Finished(finish=message, usage=usage, tool_answer=answer))
