"""Posts messages to the address in the settings. Redirects are not followed: the operator has named the receiver."""

import httpx

from outlive.base import Clock, DeniedError, UnavailableError
from outlive.loop.webhook import Message, signed

WITHIN_S = 15.0
_GONE = 410  # the receiver wants no more of it


class HttpWebhook:
    def __init__(self, url: str, key: bytes, clock: Clock) -> None:
        self._url = url
        self._key = key
        self._clock = clock

    async def post(self, message: Message) -> None:
        headers = signed(message, self._key, int(self._clock.now().timestamp()))
        try:
            async with (
                httpx.AsyncClient(timeout=WITHIN_S, follow_redirects=False, trust_env=False) as client,
                client.stream("POST", self._url, content=message.body, headers=headers) as answer,
            ):
                status = answer.status_code  # what it says besides is nobody's business
        except httpx.HTTPError as error:
            raise UnavailableError("webhook.away", f"The webhook does not answer ({type(error).__name__}).") from None
        if status == _GONE:
            raise DeniedError("webhook.gone", "The webhook says that it wants no more of this (410).")
        if not 200 <= status < 300:
            raise UnavailableError("webhook.refused", f"The webhook answered {status}.")
