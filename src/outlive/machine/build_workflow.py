"""The Temporal shell around the build of an environment: build, say if it was given up, clean up, end.

Holds no state and is deterministic, as `workflow`. The build itself may be begun again at any time: it finds its
machines and its commands by their ids. What went wrong in it is in the record, never in Temporal.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from outlive.machine.build_steps import BUILD, BUILD_ENVIRONMENT, CLEAN_UP, GIVE_UP, BuildFailure, BuildTask

_BUILD_WITHIN = timedelta(hours=6)  # with all its retries
_TRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10), maximum_attempts=30)
_RECORD = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5))
_CLEAN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), maximum_attempts=10)
_CLEAN_WITHIN = timedelta(minutes=10)
_HEARTBEAT = timedelta(seconds=5)


@workflow.defn(name=BUILD_ENVIRONMENT)
class BuildEnvironment:
    @workflow.run
    async def run(self, task: BuildTask) -> None:
        try:
            await workflow.execute_activity(
                BUILD,
                task,
                schedule_to_close_timeout=_BUILD_WITHIN,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=_TRY,
            )
        except ActivityError as error:
            failure = BuildFailure(digest=task.digest, tries=task.tries, reason=_reason(error))
            await workflow.execute_local_activity(
                GIVE_UP, failure, start_to_close_timeout=timedelta(seconds=10), retry_policy=_RECORD
            )
        try:
            await workflow.execute_activity(
                CLEAN_UP,
                task,
                schedule_to_close_timeout=_CLEAN_WITHIN,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=_CLEAN,
            )
        except ActivityError as error:
            workflow.logger.warning("environment %s: its build machines stay: %s", task.digest, _reason(error))


def _reason(error: ActivityError) -> str:
    cause = error.cause
    return cause.message if isinstance(cause, ApplicationError) else "The build did not end in time."
