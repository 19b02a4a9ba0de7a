"""Telling the outside that a person is asked: the message, its signature, and the port that posts it. Pure.

As Standard Webhooks has it (`webhook-id`, `webhook-timestamp`, `webhook-signature`): the id is the same however often a
message is posted, so that a receiver recognises one that came twice; the signature is HMAC-SHA256 over
`id.timestamp.body`.
"""

import base64
import binascii
import hashlib
import hmac
import json
from typing import NamedTuple, Protocol

from outlive.base import InvalidError, derive
from outlive.conversation.approvals import Approval

SECRET_PREFIX = "whsec_"  # noqa: S105
QUESTION_LIMIT = 4_096  # characters of a question in a message: the API has all of it


class Message(NamedTuple):
    id: str
    body: bytes


class Webhook(Protocol):
    async def post(self, message: Message) -> None:
        """Returns when the receiver has taken it (2xx). `webhook.refused` (unavailable) if not, `webhook.gone` (denied)
        if it says that it never will."""
        ...


def message_of(approval: Approval) -> Message:
    data = {
        "id": approval.id,
        "state": approval.state,
        "conversation": approval.conversation,
        "question": approval.question[:QUESTION_LIMIT],
        "tool": approval.tool,
        "effect": approval.effect,
        "digest": approval.digest,
        "expires_at": approval.expires_at,
    }
    body = {"type": "approval.requested", "timestamp": approval.requested_at, "data": data}
    return Message(derive("msg", approval.id), json.dumps(body, separators=(",", ":")).encode())


def key_of(secret: str) -> bytes:
    """The bytes that a secret stands for: `whsec_` and base64, or any text as it is."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidError("webhook.secret", f"What stands behind {SECRET_PREFIX} is not base64.") from None


def signed(message: Message, key: bytes, timestamp: int) -> dict[str, str]:
    """The headers that a message is posted with."""
    signing = hmac.new(key, f"{message.id}.{timestamp}.".encode() + message.body, hashlib.sha256)
    return {
        "content-type": "application/json",
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signing.digest()).decode()}",
    }
