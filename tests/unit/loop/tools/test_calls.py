"""From a model's call to its result, where no machine is needed: what does not fit comes back to be mended."""

from typing import Any, cast

import pytest
from pydantic import Field

from outlive.base import (
    ConflictError,
    ConversationId,
    EffectId,
    FencedError,
    OutliveError,
    PrincipalId,
    StepId,
    TurnId,
    UnavailableError,
)
from outlive.conversation.artifacts import Artifacts
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import ToolCall
from outlive.loop.tools import RUNS, ToolContext, ToolParts, ToolResult
from outlive.loop.tools.arguments import Arguments, Path, describe, parse, schema_of
from outlive.loop.tools.registry import BUILT_IN, outcome_of, run_tool, specs_of
from outlive.machine.terminal.status import Operator

pytestmark = pytest.mark.anyio

NOTHING = ToolContext(
    parts=ToolParts(cast("Conversations", None), cast("Artifacts", None)),
    conversation=ConversationId("conv_1"),
    turn=TurnId("turn_1"),
    step=StepId("step_1"),
    effect_id=EffectId("eff_1"),
    operator=Operator(id=PrincipalId("agent:coder"), name="coder", kind="agent"),
    say=lambda text, stream: None,
)


def call(name: str, error: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=arguments, error=error)


def test_the_tools_are_those_of_the_interface() -> None:
    assert {tool.name: describe(tool.arguments) for tool in BUILT_IN.values()} == {  # type: ignore[attr-defined]
        "shell": "command (string), timeout_s (number, optional), background (boolean, optional)",
        "read_file": "path (string), offset (integer, optional), limit (integer, optional)",
        "write_file": "path (string), content (string)",
        "edit_file": "path (string), old (string), new (string), all (boolean, optional)",
        "list_files": "path (string, optional), glob (string, optional)",
        "search": "pattern (string), path (string, optional)",
        "publish": "path (string), title (string, optional)",
        "wait": "seconds (number, optional), until (string, optional)",
        "ask_human": "question (string), proposal (string, optional)",
        "subagent": (
            "prompt (string), agent (string, optional), machine (string, optional), detached (boolean, optional)"
        ),
    }
    assert {tool.name: tool.runs for tool in BUILT_IN.values()} == RUNS
    assert all(tool.is_idempotent for tool in BUILT_IN.values())


def test_what_a_model_is_told_of_a_tool_is_a_plain_schema() -> None:
    [spec] = specs_of(["edit_file"])
    assert spec.parameters["required"] == ["path", "old", "new"]
    assert spec.parameters["additionalProperties"] is False
    assert "title" not in str(spec.parameters)
    assert specs_of(["fly"]) == ()  # a tool of a user's that is not offered any more


class Named(Arguments):
    """With fields called as the words of a schema are."""

    title: str = Field(description="A title.")
    properties: int = 3


def test_fields_that_are_called_like_words_of_a_schema_stay() -> None:
    assert schema_of(Named)["properties"] == {
        "title": {"type": "string", "description": "A title."},
        "properties": {"type": "integer", "default": 3},
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (call("write_file", path="a"), "- content: Field required"),
        (call("write_file", path="a", content="x", mode=7), "- mode: Extra inputs are not permitted"),
        (call("read_file", path="a", limit=0), "- limit: Input should be greater than or equal to 1"),
        (call("read_file", path="a\0"), "- path: Value error, holds a NUL character"),
        (call("read_file", path="a" * 5_000), "longer than 4095 bytes"),
        (call("shell", error="the arguments are no JSON"), "- the arguments are no JSON"),
        (call("shell", command=""), "- command: String should have at least 1 character"),
        (call("search", pattern="a\nb"), "holds a line end"),
    ],
)
async def test_arguments_that_do_not_fit_are_rejected_with_what_to_mend(given: ToolCall, told: str) -> None:
    result = await run_tool(given, NOTHING)
    assert result.outcome == "rejected"
    assert told in result.output


def test_a_rejection_says_what_the_tool_takes_and_nothing_of_what_was_given() -> None:
    class OnePath(Arguments):
        path: Path

    result = parse(OnePath, call("x", secret="s3cr3t"))
    assert isinstance(result, ToolResult)
    assert result.output.endswith("It takes: path (string).")
    assert "s3cr3t" not in result.output


async def test_a_tool_that_is_not_there_or_not_the_agents_is_rejected() -> None:
    unknown = await run_tool(call("fly"), NOTHING)
    assert (unknown.outcome, "'fly'; there are: shell, " in unknown.output) == ("rejected", True)
    denied = await run_tool(call("shell", command="x"), NOTHING, allowed=["search"])
    assert denied == ToolResult("rejected", "There is no tool 'shell'; there are: search.")


async def test_a_tool_without_machines_is_rejected() -> None:
    result = await run_tool(call("shell", command="true"), NOTHING)
    assert (result.outcome, "no machines" in result.output) == ("rejected", True)


class Refusing:
    """Machines that refuse everything."""

    def __init__(self, error: OutliveError) -> None:
        self.error = error

    async def ensure(self, context: ToolContext) -> None:
        raise self.error


@pytest.mark.parametrize("error", [UnavailableError("node.away", "away"), FencedError("step.fenced", "stop")])
async def test_what_a_retry_may_mend_is_raised(error: OutliveError) -> None:
    context = ToolContext(**{**_fields(NOTHING), "parts": ToolParts(*_none(), machines=Refusing(error))})  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        await run_tool(call("shell", command="true"), context)


async def test_what_no_retry_mends_is_a_failure_that_the_model_is_told() -> None:
    error = ConflictError("environment.failed", "It could not be built.")
    context = ToolContext(**{**_fields(NOTHING), "parts": ToolParts(*_none(), machines=Refusing(error))})  # type: ignore[arg-type]
    result = await run_tool(call("shell", command="true"), context)
    assert result == ToolResult("failed", "It could not be built.")
    assert outcome_of(ConflictError("machine.paused", "x")) == "rejected"


def _fields(context: ToolContext) -> dict[str, Any]:
    return {name: getattr(context, name) for name in ToolContext.__slots__}


def _none() -> tuple[Conversations, Artifacts]:
    return NOTHING.parts.conversations, NOTHING.parts.artifacts
