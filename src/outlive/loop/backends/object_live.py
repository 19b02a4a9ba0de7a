"""Live output of users' tools as objects: one for each call that says something, gone when the call is over."""

from outlive.base import EffectId, NotFoundError
from outlive.storage.objects import ObjectStore


class ObjectLiveOutput:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def put(self, effect: EffectId, text: str) -> None:
        await self._objects.replace(_key(effect), text.encode("utf-8", "replace"))

    async def get(self, effect: EffectId) -> str:
        try:
            return (await self._objects.get(_key(effect))).decode("utf-8", "replace")
        except NotFoundError:
            return ""

    async def forget(self, effect: EffectId) -> None:
        await self._objects.delete(_key(effect))


def _key(effect: EffectId) -> str:
    return f"live/{effect}"
