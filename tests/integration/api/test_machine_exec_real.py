"""Commands over HTTP in a real sandbox."""

import base64
import json
from pathlib import Path

import pytest

from integration.api.sandboxed import open_sandboxed_api

pytestmark = pytest.mark.anyio


async def test_a_command_that_cannot_be_started_is_answered_as_a_result_and_never_as_a_machine_that_is_not_there(
    tmp_path: Path,
) -> None:
    async with open_sandboxed_api(tmp_path) as api:
        place = f"/v1/machines/{(await api.create()).id}"
        asked = {"argv": ["no-such-program"], "effect_id": "absent"}
        first = await api.http.post(f"{place}/exec", json=asked)
        assert (first.status_code, first.json()["outcome"], first.json()["exit_code"]) == (200, "finished", 127)
        assert first.json()["stderr"] == "'no-such-program' did not start: No such file or directory.\n"
        assert (await api.http.post(f"{place}/exec", json=asked)).json() == first.json()
        assert (await api.http.get(f"{place}/effects/absent")).json() == first.json()
        lost = {"command": "true", "cwd": "/no/such", "background": True}
        behind = (await api.http.post(f"{place}/exec", json=lost)).json()
        assert (behind["outcome"], behind["exit_code"]) == ("finished", 126)

        headers = {"accept": "application/x-ndjson"}
        asked = {"argv": ["/workspace"], "effect_id": "live"}
        told = (await api.http.post(f"{place}/exec", json=asked, headers=headers)).text
        _, piece, last = [json.loads(line) for line in told.splitlines() if line]
        assert (piece["stream"], last["result"]["exit_code"]) == ("stderr", 126)
        assert base64.b64decode(piece["data"]).decode() == last["result"]["stderr"]
