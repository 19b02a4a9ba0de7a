"""Pictures that people attached, fetched for the model. Bounded; one that is gone is told by its name only."""

from collections.abc import Sequence

from outlive.base import NotFoundError
from outlive.conversation.blobs import Blobs
from outlive.conversation.events import Event
from outlive.loop.models import Image

MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PICTURE_BYTES = 4 * 1024 * 1024
PICTURES_BYTES = 16 * 1024 * 1024  # of one step: the newest


async def fetch_pictures(blobs: Blobs, events: Sequence[Event]) -> dict[str, Image]:
    """By their blob. The newest first, as many as fit."""
    found: dict[str, Image] = {}
    left = PICTURES_BYTES
    for event in reversed(events):
        # Looked for before it is decoded: a message without attachments is the rule.
        if event.type != "message.sent" or '"attachments":[{' not in event.data_json:
            continue
        for each in event.data["attachments"]:
            is_picture = each["media_type"] in MEDIA_TYPES and each["size"] <= min(PICTURE_BYTES, left)
            if not is_picture or each["blob"] in found:
                continue
            try:
                content = await blobs.get(each["blob"])
            except NotFoundError:
                continue
            found[each["blob"]] = Image(each["media_type"], content)
            left -= len(content)
    return found
