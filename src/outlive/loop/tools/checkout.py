"""The repository of a conversation, put into `/workspace` of its machine, once.

`metadata.repo` of the conversation says which: `{"blob": ..., "ref"?}` (a git bundle among the blobs) or `{"url": ...,
"ref"?}`. It is cloned by the machine's own git, as the machine's user, through the machine's egress.

Invariant: the checkout is an effect; its id stands for one request, so nothing is cloned twice into one machine. If it
fails, the first tool that needs the machine says why, and those after it run without.
"""

from collections.abc import AsyncIterator, Mapping

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from outlive.base import ConflictError, ConversationId, EffectId, InvalidError, derive
from outlive.conversation.blobs import is_blob_name
from outlive.conversation.conversations import Conversations
from outlive.loop.tools.port import ToolContext
from outlive.loop.tools.reach import ToolMachine
from outlive.machine.door import ExecRequest, MachineDoor
from outlive.machine.status import Effect

CHECKOUT_WITHIN_S = 600.0
_SHOWN = 2_000  # characters of what git said
_PIECE = 256 * 1024
_PAGE = 1_000

_SCRIPT = """
set -e
command -v git >/dev/null || { echo "there is no git in this machine; name an environment that has it" >&2; exit 2; }
if [ -n "$(ls -A .)" ]; then echo "/workspace is not empty" >&2; exit 3; fi
export GIT_TERMINAL_PROMPT=0
git clone --quiet -- "$OUTLIVE_SOURCE" .
if [ -n "$OUTLIVE_REF" ]; then git checkout --quiet "$OUTLIVE_REF" --; fi
if [ -n "$OUTLIVE_BUNDLE" ]; then git remote remove origin; rm -f -- "$OUTLIVE_SOURCE"; fi
"""


class Repo(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    blob: str | None = None
    url: str | None = Field(None, max_length=2_000)
    ref: str | None = Field(None, max_length=500, pattern=r"^[^\s\x00-][^\s\x00]*$")

    @model_validator(mode="after")
    def _names_one_source(self) -> "Repo":
        if (self.blob is None) == (self.url is None):
            raise ValueError("give either blob or url")
        if self.blob is not None and not is_blob_name(self.blob):
            raise ValueError("blob is not the name of a blob")
        if self.url is not None and (self.url.startswith("-") or "\0" in self.url):
            raise ValueError("url is not the address of a repository")
        return self

    @property
    def shown(self) -> str:
        return self.url or "the given bundle"


def repo_of(metadata: Mapping[str, JsonValue]) -> Repo | None:
    """What the conversation was made with."""
    if metadata.get("repo") is None:
        return None
    try:
        return Repo.model_validate(metadata["repo"])
    except ValidationError as error:
        what = "; ".join(str(each["msg"]) for each in error.errors(include_url=False, include_input=False))
        raise InvalidError("repo.malformed", f"The conversation's `repo` names no repository: {what}.") from None


def checkout_id(conversation: ConversationId, n: int) -> EffectId:
    """Of the n-th checkout in a machine: there is a second one only where the first did not stay."""
    return EffectId(derive("eff", conversation, n))


def checkout_request(repo: Repo, effect: EffectId) -> ExecRequest:
    source = repo.url or bundle_path(effect)
    env = {"OUTLIVE_SOURCE": source, "OUTLIVE_REF": repo.ref or "", "OUTLIVE_BUNDLE": "1" if repo.blob else ""}
    return ExecRequest(effect_id=effect, command=_SCRIPT, env=env, timeout_s=CHECKOUT_WITHIN_S)


def bundle_path(effect: EffectId) -> str:
    return f"/tmp/{effect}.bundle"  # noqa: S108  in the machine


def failure_text(repo: Repo, effect: Effect) -> str:
    said = (effect.stderr or effect.stdout).strip()[-_SHOWN:]
    lines = [f"The repository ({repo.shown}) could not be checked out into /workspace."]
    if effect.state == "timeout":
        lines.append(f"It took more than {CHECKOUT_WITHIN_S:g} s.")
    if said:
        lines.append(f"git said: {said}")
    if repo.url is not None and _is_egress(said):
        lines.append("The machine reaches nothing but what its environment's egress allows; this address is not in it.")
    lines.append("This call was not run. The machine is there without the repository; calls after this one are run.")
    return "\n".join(lines)


def _is_egress(said: str) -> bool:
    words = ("CONNECT tunnel failed", "Could not resolve", "Failed to connect", "unable to access", "HTTP code 403")
    return any(word in said for word in words)


async def ensure_checkout(conversations: Conversations, machine: ToolMachine, repo: Repo, effect: EffectId) -> Effect:
    """What came of the checkout under this id: done now, or found."""
    known = await machine.find(effect)
    if known is not None and known.is_over:
        return known
    if known is None and repo.blob is not None:
        content = await conversations.blobs.get(repo.blob)

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(content), _PIECE):
                yield content[at : at + _PIECE]

        async def write(door: MachineDoor, generation: int) -> int:
            return await door.write_file(machine.id, generation, bundle_path(effect), pieces())

        await machine.use(write)
    return await machine.caller.exec(machine.id, checkout_request(repo, effect))


async def tell_failure(
    conversations: Conversations, context: ToolContext, repo: Repo, effect: Effect, attached: int
) -> None:
    """Fail the call, unless one that was begun after the machine was attached (at that seq) has told the model."""
    after = attached
    while events := await conversations.read(context.conversation, after, _PAGE):
        if any(event.type == "tool.finished" for event in events):
            return
        after = events[-1].seq
    raise ConflictError("repo.not_checked_out", failure_text(repo, effect))
