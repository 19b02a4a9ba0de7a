"""Artifacts: what a turn offers as proof. The port to their records, by id.

An artifact is written once and never changes: its bytes are a blob, and this says what they are. Which artifacts a
conversation has is in its log (`artifact.published`); the record is only the way from an id to the bytes.
"""

from typing import Protocol

from pydantic import BaseModel, ConfigDict

from outlive.base import ArtifactId, ConversationId


class Artifact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: ArtifactId
    conversation: ConversationId
    title: str
    name: str  # of the file that it was
    media_type: str
    size: int
    blob: str


class Artifacts(Protocol):
    async def put(self, artifact: Artifact) -> Artifact:
        """Keep it under its id, durably. One that is there already stays, and is returned."""
        ...

    async def get(self, artifact: ArtifactId) -> Artifact:
        """`artifact.not_found` (not_found) if there is none."""
        ...
