"""A webhook is told that a person is asked: signed, tried again until it is taken, under one id however often."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from eventually import eventually
from integration.loop.turns import WITHIN_S, data_of, stage_at
from integration.loop.waits import careful, decide, parked
from outlive.loop.webhook import key_of
from outlive.testing.pretend_provider import PretendProvider
from services.webhook import Receiver

pytestmark = pytest.mark.anyio

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


async def test_a_webhook_is_told_of_an_approval_signed_and_until_it_takes_it(
    provider: PretendProvider, temporal: str, tmp_path: Path
) -> None:
    with Receiver().listening() as receiver:
        hook = {"webhook_url": receiver.url, "webhook_secret": SECRET}
        async with stage_at(tmp_path / "home", temporal, approvals=hook) as stage:
            conversation = await careful(stage, approve=["read_file"])
            turn = await stage.send(conversation, '[[tool read_file {"path": "a"}]] [[say Done.]]')
            [asked] = await parked(stage, conversation)
            await eventually(lambda: len(receiver.posted) == 2, WITHIN_S)
            # A message makes the turn look, and wait again: nobody is told a second time.
            await stage.send(conversation, "well?")
            await parked(stage, conversation)
            await decide(stage, asked, "approve")
            assert data_of(await stage.ended(conversation, turn), "turn.finished")[0]["outcome"] == "done"
    assert len(receiver.posted) == 2
    assert len({headers["webhook-id"] for headers, _ in receiver.posted}) == 1
    for headers, body in receiver.posted:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        signature = base64.b64encode(hmac.new(key_of(SECRET), signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{signature}"
        told = json.loads(body)
        assert told["type"] == "approval.requested"
        assert (told["data"]["id"], told["data"]["digest"]) == (asked.id, asked.digest)
        assert told["data"]["conversation"] == conversation
