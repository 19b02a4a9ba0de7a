"""Appends to a spool until it is killed. After each append it says on stdout where the output stands."""

import sys
from datetime import UTC, datetime
from pathlib import Path

from outlive.base import PrincipalId, TerminalId
from outlive.machine.node.terminals.spool import Spool
from outlive.machine.terminal.journal import Actor, Input, Output, Snapshot

folder, terminal = Path(sys.argv[1]), TerminalId(sys.argv[2])
who = Actor(PrincipalId("prin_1"), "ada", "person")
pattern = bytes(place % 251 for place in range(251 * 100))


def expected(start: int, size: int) -> bytes:
    return pattern[start % 251 : start % 251 + size]


now = datetime.now(UTC)
spool = Spool.reopen(folder, terminal) or Spool.begin(
    folder, terminal, n=1, offset=0, input_offset=0, generation=1, at=now
)
while True:
    size = 1 + spool.offset % 4999
    spool.append(Output(now, spool.offset, expected(spool.offset, size)))
    print(spool.offset, flush=True)
    spool.append(Input(now, spool.offset, spool.input_offset, who, expected(spool.input_offset, 3)))
    if spool.wants_snapshot:
        spool.append(Snapshot(now, spool.offset, 80, 24, b"drawn"))
