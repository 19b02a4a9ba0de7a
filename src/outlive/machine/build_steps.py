"""The words that the build of an environment, its workflow and the workers say to each other through Temporal. A wire
format, as `steps`: names are never renamed, shapes only gain fields with defaults, only references pass."""

from typing import Final

from pydantic import BaseModel, ConfigDict

BUILD_ENVIRONMENT: Final = "environment.build"  # the workflow; its id is `env_` and the digest
BUILD: Final = "environment.build_once"
GIVE_UP: Final = "environment.give_up"
CLEAN_UP: Final = "environment.clean_up"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class BuildTask(_Message):
    """The argument of the workflow and of every step."""

    digest: str
    tries: int


class BuildFailure(_Message):
    """A build that ended without saying why."""

    digest: str
    tries: int
    reason: str


def workflow_id(digest: str) -> str:
    return f"env_{digest}"
