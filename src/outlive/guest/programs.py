"""From what a request says to a program that can be started: the user, the directory, the environment."""

import os
from collections.abc import Mapping, Sequence

from outlive.guest import words as read
from outlive.guest.identity import Identity
from outlive.guest.spawn import Program, environment
from outlive.guest.users import AGENT, Users
from outlive.guest.wire import Words


class Programs:
    def __init__(self, users: Users, identity: Identity, workspace: str) -> None:
        self._users = users
        self._identity = identity
        self._workspace = workspace

    def make(self, argv: Sequence[str], words: Words, more: Mapping[str, str] | None = None) -> Program:
        user = self._users.find(read.text(words, "user", AGENT))
        env = environment(user, more or {}, self._identity.env, read.table(words, "env"))
        cwd = os.path.join(self._workspace, read.text(words, "cwd", ""))
        return Program(argv, env, cwd, user)
