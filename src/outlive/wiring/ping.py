"""The smallest workflow there is: it asks one activity for a word. It shows whether Temporal and a worker work, from
end to end: a worker runs it before it says that it is ready, and `outlive doctor` when it is asked.
"""

import secrets
import time
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.service import RPCError

from outlive.base import UnavailableError
from outlive.machine.queues import MACHINES

PING = "outlive.ping"
PONG = "outlive.pong"
WITHIN_S = 10.0


@activity.defn(name=PONG)
async def pong(word: str) -> str:
    return word


@workflow.defn(name=PING)
class Ping:
    @workflow.run
    async def run(self, word: str) -> str:
        return await workflow.execute_activity(
            pong,
            word,
            start_to_close_timeout=timedelta(seconds=2),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=1)
            ),
        )


async def ping(client: Client, within_s: float = WITHIN_S, task_queue: str = MACHINES) -> float:
    """The milliseconds of one round trip: workflow, activity and back. Raises `unavailable` if nobody answers."""
    word = secrets.token_hex(8)
    began = time.monotonic()
    try:
        # The server bounds the wait: it ends the workflow, and with it this call.
        answer = await client.execute_workflow(
            Ping.run,
            word,
            id=f"ping-{word}",
            task_queue=task_queue,
            execution_timeout=timedelta(seconds=within_s),
            rpc_timeout=timedelta(seconds=within_s + 2),
        )
    except (WorkflowFailureError, RPCError) as error:
        raise UnavailableError(
            "worker.away",
            f"No worker has answered within {within_s:g} s ({error}). See logs/worker.log under home.",
        ) from None
    assert answer == word
    return (time.monotonic() - began) * 1000
