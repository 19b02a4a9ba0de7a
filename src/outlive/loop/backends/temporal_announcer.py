"""Has approvals announced by a workflow of their own, one each: its id is the approval's, so that each is announced
once, whoever asks and however often."""

from collections.abc import Sequence
from datetime import timedelta

import anyio
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from outlive.base import ApprovalId, UnavailableError
from outlive.loop.queues import LOOP
from outlive.loop.tasks import ANNOUNCE, AnnounceTask
from outlive.loop.views import View

_START_WITHIN_S = 5.0


class TemporalAnnouncer:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def announce(self, view: View, approvals: Sequence[ApprovalId]) -> None:
        for approval in approvals:
            await self._start(approval)

    async def _start(self, approval: ApprovalId) -> None:
        try:
            with anyio.fail_after(_START_WITHIN_S):
                await self._client.start_workflow(
                    ANNOUNCE,
                    AnnounceTask(approval=approval),
                    id=f"announce/{approval}",
                    task_queue=LOOP,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    rpc_timeout=timedelta(seconds=_START_WITHIN_S),
                )
        except WorkflowAlreadyStartedError:
            return
        except TimeoutError:
            raise UnavailableError("temporal.away", f"Temporal gave no answer in {_START_WITHIN_S:g} s.") from None
        except (RPCError, TemporalError) as error:
            raise UnavailableError("temporal.away", f"Temporal does not answer ({error}).") from error
