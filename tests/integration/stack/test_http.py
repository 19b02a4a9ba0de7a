"""What the API process does about the limits of the system, seen from outside."""

import http.client
import json
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

from integration.stack.homes import Home


def test_the_api_takes_as_many_descriptors_as_it_may_have(home: Home) -> None:
    home.up_within("ulimit -Sn 300 && ulimit -Hn 2000")
    assert home.descriptor_limits("api") == ["2000", "2000"]


def test_there_are_no_more_followers_than_descriptors_for_them(home: Home) -> None:
    home.up_within("ulimit -n 280")
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
