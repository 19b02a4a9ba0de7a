"""Records of artifacts in an object store: one small object each, created once and never changed."""

from pydantic import ValidationError

from outlive.base import ArtifactId, BrokenError, NotFoundError, is_id
from outlive.conversation.artifacts import Artifact
from outlive.storage.objects import ObjectStore


class ObjectArtifacts:
    """An `Artifacts`."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def put(self, artifact: Artifact) -> Artifact:
        if await self._objects.put_new(_key(artifact.id), artifact.model_dump_json().encode()):
            return artifact
        return await self.get(artifact.id)

    async def get(self, artifact: ArtifactId) -> Artifact:
        unknown = NotFoundError("artifact.not_found", f"There is no artifact {artifact[:100]!r}.")
        if not is_id(artifact, "art"):
            raise unknown
        try:
            content = await self._objects.get(_key(artifact))
        except NotFoundError:
            raise unknown from None
        try:
            return Artifact.model_validate_json(content)
        except ValidationError as error:
            raise BrokenError("artifact.damaged", f"What is kept of artifact {artifact!r} is damaged.") from error


def _key(artifact: ArtifactId) -> str:
    return f"artifacts/{artifact[-2:]}/{artifact}"
