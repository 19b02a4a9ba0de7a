"""Has machines settled by their workflow. Callers of one machine share a run: its id is the machine's."""

from datetime import timedelta

import anyio
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from outlive.base import BrokenError, DeadlineError, MachineId, UnavailableError
from outlive.machine.queues import MACHINES
from outlive.machine.steps import SETTLE, Task

_START_WITHIN_S = 10.0
_RUN_WITHIN_S = 240.0


class TemporalSettler:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def settle(self, machine: MachineId) -> None:
        try:
            with anyio.fail_after(_START_WITHIN_S):
                handle = await self._client.start_workflow(
                    SETTLE,
                    Task(machine=machine),
                    id=machine,
                    task_queue=MACHINES,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    rpc_timeout=timedelta(seconds=_START_WITHIN_S),
                )
            with anyio.fail_after(_RUN_WITHIN_S):
                await handle.result()
        except TimeoutError:
            raise DeadlineError("machine.slow", f"Machine {machine!r} is still being worked on; ask again.") from None
        except RPCError as error:
            raise UnavailableError("temporal.away", f"Temporal does not answer ({error.message}).") from error
        except WorkflowFailureError as error:
            raise BrokenError("machine.workflow", f"The work on machine {machine!r} failed: {error.cause}") from error
        except TemporalError as error:
            raise UnavailableError("temporal.away", f"Temporal does not answer ({error}).") from error
