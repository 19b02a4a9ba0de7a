"""A machine that was hibernated comes back with its memory: shells, servers, terminals, under the same id."""

from pathlib import Path

import pytest

from machine_rooms import open_machine_room

pytestmark = pytest.mark.anyio

_SERVER = "nohup python3 -m http.server 8123 --directory /workspace >/dev/null 2>&1 & echo started"


async def test_a_server_a_shell_variable_and_a_file_come_back(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        assert machine.state == "running", room.settler.failed
        await room.exec(machine.id, f"echo hello > /workspace/greeting; {_SERVER}")
        resident = node.residents.get(machine.id, machine.generation)
        async with resident.use() as guest:
            await guest.terminals.open("term_1", argv=["/bin/bash", "--norc"])
            async with guest.terminals.attach("term_1", offset=0, with_input=True) as terminal:
                await terminal.send(b"kept=in-memory\n")
        hibernated = await room.keeper.do(machine.id, "hibernate")
        assert (hibernated.state, hibernated.node) == ("hibernated", None), room.settler.failed
        await room.empty()

        woken = await room.keeper.do(machine.id, "wake")
        assert (woken.id, woken.state, woken.generation) == (machine.id, "running", machine.generation + 1)
        done = await room.exec(
            machine.id,
            "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/greeting').read())\"",
        )
        assert done.stdout == "b'hello\\n'\n", done
        resident = node.residents.get(machine.id, woken.generation)
        async with (
            resident.use() as guest,
            guest.terminals.attach("term_1", offset=0, with_input=True) as terminal,
        ):
            await terminal.send(b'echo "<$kept>"\n')
            seen = b""
            while b"<in-memory>" not in seen:
                seen += await terminal.receive() or b""
        kinds = [event.kind for _, event in await room.records.machines.events(machine.id, after=0, limit=50)]
        assert "rebooted" not in kinds
        assert kinds[-1] == "woken"
        await room.keeper.do(machine.id, "delete")
        await room.empty()
