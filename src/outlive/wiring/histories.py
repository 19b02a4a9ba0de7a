"""Exporting histories of turns from the Temporal that the settings name."""

from pathlib import Path

from outlive.base import ConversationId
from outlive.loop.backends.temporal_histories import Exported, export_histories
from outlive.wiring.settings import Settings
from outlive.wiring.temporal import connect_temporal

_WITHIN_S = 5.0


async def export(settings: Settings, folder: Path, conversation: ConversationId | None, limit: int) -> list[Exported]:
    client = await connect_temporal(settings, _WITHIN_S, is_quiet=True)
    return await export_histories(client, folder, conversation, limit)
