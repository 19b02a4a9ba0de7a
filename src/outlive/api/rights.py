"""What a request needs the right `type` for. Pure.

Who may only observe may only look: safe methods, and of a server in a machine only pages, no WebSocket. What may be
done through a WebSocket into a terminal is decided where terminals are.
"""

import re

from outlive.base import DeniedError
from outlive.governance import Principal

READING = frozenset({"GET", "HEAD"})
SAFE = READING | {"OPTIONS"}
_PORTS = re.compile(r"/v1/machines/[^/]*/ports(?:/|\Z)")


def check_rights(principal: Principal, method: str, path: str, *, is_upgrade: bool) -> None:
    if "type" in principal.rights:
        return
    into_server = _PORTS.match(path) is not None
    if method not in (READING if into_server else SAFE) or (into_server and is_upgrade):
        raise DeniedError(
            "rights.observe_only", f"{principal.name!r} may only observe: this needs the right type.", right="type"
        )
