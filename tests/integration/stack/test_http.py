"""What the API process does about the limits of the system, seen from outside."""

import http.client
import json
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

from integration.stack.homes import COMMAND, Home


def up_within(home: Home, limits: str) -> None:
    result = subprocess.run(
        ["/bin/sh", "-c", f'{limits} && exec "$0" "$@"', *COMMAND, "up", "--detach"],
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_api_takes_as_many_descriptors_as_it_may_have(home: Home) -> None:
    up_within(home, "ulimit -Sn 300 && ulimit -Hn 2000")
    [line] = [
        line
        for line in Path(f"/proc/{home.api_pid()}/limits").read_text().splitlines()
        if line.startswith("Max open files")
    ]
    assert line.split()[3:5] == ["2000", "2000"]


def test_there_are_no_more_followers_than_descriptors_for_them(home: Home) -> None:
    up_within(home, "ulimit -n 280")
    path = f"/v1/conversations/{home.create('followed')}/stream"
    address = urlsplit(home.endpoint["url"]).netloc
    with ExitStack() as stack:
        statuses = []
        for _ in range(25):
            connection = stack.enter_context(closing(http.client.HTTPConnection(address, timeout=20)))
            connection.request("GET", path, headers={"authorization": f"Bearer {home.endpoint['token']}"})
            statuses.append(connection.getresponse().status)
        assert statuses == [200] * 24 + [503]
        assert home.is_ready()
    lines = [json.loads(line) for line in (home.path / "logs" / "api.log").read_text().splitlines()]
    assert [line for line in lines if "only 24 followers" in line["message"]]
