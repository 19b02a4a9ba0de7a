"""Posting one approval to the webhook. It may be posted twice, always under the same id: so the receiver knows it."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from outlive.base import ApprovalId, CrashPoint, reach
from outlive.conversation.approvals import Approvals
from outlive.loop.failures import as_failure
from outlive.loop.tasks import DELIVER, AnnounceTask
from outlive.loop.webhook import Webhook, message_of


class AnnounceActivities:
    """Without a webhook nothing is announced: the setting was taken away while one waited."""

    def __init__(self, approvals: Approvals, webhook: Webhook | None) -> None:
        self._approvals = approvals
        self._webhook = webhook

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.deliver,)

    @activity.defn(name=DELIVER)
    async def deliver(self, task: AnnounceTask) -> str:
        with as_failure():
            found = await self._approvals.get(ApprovalId(task.approval))
            if found.state != "pending" or self._webhook is None:
                return "not needed"
            await self._webhook.post(message_of(found))
            reach(CrashPoint.WEBHOOK_AFTER_POST)
            return "told"
