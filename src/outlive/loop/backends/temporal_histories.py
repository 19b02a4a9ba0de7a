"""What Temporal remembers of turns, as files: so that a changed workflow is tried on them before it is given turns that
are open (`tests/replay`).

A history holds references, never what was said. What it holds of the host that ran it is taken out, so that a file can
be kept with the code and shown to others: names of processes, and the lines of code that an error came through.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from outlive.base import ConversationId, InvalidError, UnavailableError
from outlive.loop.tasks import TURN

_OF_THE_HOST = {"identity": "outlive", "stackTrace": ""}


class Exported(NamedTuple):
    """One run of a turn's workflow. `size`: bytes of the file."""

    conversation: str
    run: str
    state: str
    events: int
    size: int
    path: Path


async def export_histories(
    client: Client, folder: Path, conversation: ConversationId | None = None, limit: int = 100
) -> list[Exported]:
    """Write the histories of one conversation's runs, or of the newest of all, as `folder/CONVERSATION.RUN.json`."""
    query = f"WorkflowType = '{TURN}'" + (f" AND WorkflowId = '{conversation}'" if conversation else "")
    try:
        return [await _export(client, folder, run) async for run in client.list_workflows(query, limit=limit)]
    except RPCError as error:
        raise UnavailableError("temporal.away", f"Temporal does not answer ({error.message}).") from error


async def _export(client: Client, folder: Path, run: WorkflowExecution) -> Exported:
    history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
    text = without_host(history.to_json())
    path = folder / f"{run.id}.{run.run_id}.json"
    await anyio.to_thread.run_sync(_write, path, text)
    state = run.status.name.lower() if run.status is not None else "unknown"
    return Exported(run.id, run.run_id, state, len(history.events), len(text), path)


def without_host(history: str) -> str:
    """The same history, an event on each line, and nothing of the host that ran it. Pure."""
    events = [json.dumps(_cleaned(event)) for event in json.loads(history)["events"]]
    return '{"events": [\n' + ",\n".join(events) + "\n]}\n"


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _OF_THE_HOST.get(name, _cleaned(each)) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidError("histories.unwritable", f"{path} cannot be written: {error.strerror}.") from error
