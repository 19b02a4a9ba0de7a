"""Hearing an answer out: what comes is shown to whoever follows, and counted. For every step that asks a model."""

from typing import Any

from outlive.base import CrashPoint, OutliveError, StepId, reach
from outlive.conversation.events import Usage
from outlive.conversation.writer import StepWriter
from outlive.loop.activities.beating import Progress
from outlive.loop.activities.scribe import Scribe
from outlive.loop.failures import to_failure
from outlive.loop.models import Answer, OutageError, Piece, TextDelta, cost_usd, retry_delay_s
from outlive.loop.models import Usage as Counted
from outlive.loop.state import OpenTurn
from outlive.loop.views import View


async def listen(pieces: Any, writer: StepWriter, said: list[str], progress: Progress) -> Answer:
    """Show what comes, to the end. `said` has the text so far, whatever becomes of the rest."""
    while True:
        piece = await _next(pieces)
        match piece:
            case Answer() as answer:
                return answer
            case TextDelta(text):
                writer.delta(text)
                if not said:
                    reach(CrashPoint.MODEL_AFTER_FIRST_DELTA)
                said.append(text)
                progress.characters += len(text)
            case _:
                progress.characters += len(piece.text)


async def _next(pieces: Any) -> Piece:
    """However long it takes: the client watches the wire, where a model that thinks in silence still gives signs of
    life, and the step has a deadline of its own."""
    try:
        piece: Piece = await anext(pieces)
        return piece
    except StopAsyncIteration:
        raise OutageError("model.outage", "The answer broke off; the step is tried again.") from None


def usage_of(counted: Counted, model: str) -> Usage:
    return Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cache_read_tokens=counted.cache_read_tokens,
        cache_write_tokens=counted.cache_write_tokens,
        cost_usd=cost_usd(model, counted),
    )


async def retry_later(
    scribe: Scribe, view: View, turn: OpenTurn, step: StepId, attempt: int, tried: int, error: OutliveError
) -> None:
    """Leave the step to its next attempt, and say so, if `models.errors` says that one may help; else return.
    `tried`: attempts of this model."""
    delay_s = retry_delay_s(error, tried, _spread(step, attempt))
    if delay_s is not None:
        await scribe.say_retry(view, turn, step, attempt + 1, f"{error.message} ({_soon(delay_s)})")
        raise to_failure(error, after_s=delay_s)


def _spread(step: StepId, attempt: int) -> float:
    """A number from 0 to 1 that differs between steps and attempts."""
    return (int(step[-4:], 16) * (2 * attempt + 1)) % 65536 / 65535


def _soon(delay_s: float) -> str:
    return f"again in {delay_s:.1f} s" if delay_s >= 0.1 else "again at once"
