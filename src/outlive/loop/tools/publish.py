"""`publish`: a file of the conversation's machine, offered as proof: its bytes as a blob, under an artifact's id.

Invariant: the id is given by the step's effect, and the first record under it stays: published again, it is the same
artifact, whatever the file has become meanwhile.
"""

import posixpath

from pydantic import Field

from outlive.base import ArtifactId, NotFoundError, derive, to_text
from outlive.conversation.artifacts import Artifact
from outlive.conversation.blobs import BLOB_LIMIT
from outlive.conversation.events import ArtifactPublished, NewEvent
from outlive.conversation.log import Append
from outlive.loop.tools.arguments import Arguments, Path, Text
from outlive.loop.tools.built_in import BuiltIn
from outlive.loop.tools.files import read_bytes
from outlive.loop.tools.media import media_type_of
from outlive.loop.tools.paths import in_machine
from outlive.loop.tools.port import ToolContext, ToolResult

TITLE_LIMIT = 200


class PublishArguments(Arguments):
    path: Path = Field(min_length=1, description="The file.")
    title: Text | None = Field(None, min_length=1, max_length=TITLE_LIMIT, description="What people see it by.")


class Publish(BuiltIn[PublishArguments]):
    name = "publish"
    description = "Offer a file of the machine to the people in this conversation: a diff, a report, a picture."
    arguments = PublishArguments
    is_changing = True

    async def act(self, arguments: PublishArguments, context: ToolContext) -> ToolResult:
        artifact = ArtifactId(derive("art", context.effect_id))
        try:
            made = await context.parts.artifacts.get(artifact)
        except NotFoundError:
            found = await self._take(artifact, arguments, context)
            if isinstance(found, ToolResult):
                return found
            made = await context.parts.artifacts.put(found)
        await _say(made, context)
        return ToolResult(
            "finished", f"Published {made.title!r} ({made.media_type}, {made.size:,} bytes) as {made.id}."
        )

    async def _take(
        self, artifact: ArtifactId, arguments: PublishArguments, context: ToolContext
    ) -> Artifact | ToolResult:
        machine = await context.machine()
        path = in_machine(arguments.path)
        entry = await machine.use(lambda door, generation: door.stat_file(machine.id, generation, path))
        too_big = ToolResult("failed", f"{arguments.path!r} is larger than {BLOB_LIMIT:,} bytes, which is the most.")
        if entry.size > BLOB_LIMIT:
            return too_big
        content = await read_bytes(machine, path, BLOB_LIMIT + 1)
        if len(content) > BLOB_LIMIT:
            return too_big
        name = posixpath.basename(path).encode("utf-8", "replace").decode()
        return Artifact(
            id=artifact,
            conversation=context.conversation,
            title=arguments.title or name,
            name=name,
            media_type=media_type_of(name, content),
            size=len(content),
            blob=await context.parts.conversations.blobs.put(content),
        )


async def _say(made: Artifact, context: ToolContext) -> None:
    """Once, in the log."""
    published = ArtifactPublished(artifact=made.id, title=made.title, media_type=made.media_type, size=made.size)
    conversations = context.parts.conversations
    await conversations.append(
        Append(
            context.conversation,
            (NewEvent(published, to_text(conversations.clock.now())),),
            key=f"artifact/{made.id}",
            actor=context.operator.id,
            turn=context.turn,
        )
    )
