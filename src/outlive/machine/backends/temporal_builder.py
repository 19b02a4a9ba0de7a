"""Has environments built by their workflow. Whoever asks for the same definition shares a run: its id is the digest."""

from datetime import timedelta

import anyio
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from outlive.base import UnavailableError
from outlive.machine.build_steps import BUILD_ENVIRONMENT, BuildTask, workflow_id
from outlive.machine.queues import MACHINES

_START_WITHIN_S = 10.0


class TemporalBuilder:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def build(self, digest: str, tries: int) -> None:
        try:
            with anyio.fail_after(_START_WITHIN_S):
                await self._client.start_workflow(
                    BUILD_ENVIRONMENT,
                    BuildTask(digest=digest, tries=tries),
                    id=workflow_id(digest),
                    task_queue=MACHINES,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    rpc_timeout=timedelta(seconds=_START_WITHIN_S),
                )
        except TimeoutError:
            raise UnavailableError("temporal.away", f"Temporal gave no answer in {_START_WITHIN_S:g} s.") from None
        except (RPCError, TemporalError) as error:
            raise UnavailableError("temporal.away", f"Temporal does not answer ({error}).") from error
