"""Telling a webhook of one approval, as Temporal runs it: apart from the turn, which waits for nobody's web server."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from outlive.loop.tasks import ANNOUNCE, DELIVER, AnnounceTask

ATTEMPTS = 15  # over about a day
_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=3.0,
    maximum_interval=timedelta(hours=3),
    maximum_attempts=ATTEMPTS,
)
_WITHIN = timedelta(seconds=30)


@workflow.defn(name=ANNOUNCE)
class Announce:
    @workflow.run
    async def run(self, task: AnnounceTask) -> str:
        """What became of it. One that nobody takes is given up: people find it in the list."""
        try:
            told: str = await workflow.execute_activity(
                DELIVER, task, result_type=str, start_to_close_timeout=_WITHIN, retry_policy=_RETRY
            )
        except ActivityError:
            return "given up"
        return told
