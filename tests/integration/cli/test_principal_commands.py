"""The commands of principals against a real stack: made, used with its token, and shut out."""

import json
from typing import Any

from integration.stack.homes import Home


def document(home: Home, *arguments: str, **environment: str) -> Any:
    result = home.run(*arguments, "--json", **environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_principal_from_its_making_to_its_end(running: Home) -> None:
    made = document(running, "principal", "create", "wall board", "--kind", "device", "--right", "observe")
    token = made.pop("token")
    assert (made["name"], made["kind"], made["rights"]) == ("wall board", "device", ["observe"])
    assert document(running, "principal", "show", OUTLIVE_TOKEN=token) == made
    assert document(running, "principal", "show", "wall board") == made
    assert made in document(running, "principals")["items"]
    refused = running.run("new", "--json", OUTLIVE_TOKEN=token)
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (4, "rights.observe_only")
    denied = running.run("principals", OUTLIVE_TOKEN=token)
    assert (denied.returncode, denied.stdout) == (4, "")
    gone = document(running, "principal", "delete", "wall board")
    assert gone["id"] == made["id"]
    assert gone["deleted_at"] is not None
    assert running.run("principal", "show", OUTLIVE_TOKEN=token).returncode == 4
    assert running.run("principal", "show", "wall board").returncode == 3


def test_people_are_told_how_to_use_the_token(running: Home) -> None:
    said = running.run("principal", "create", "anna", "--kind", "person")
    assert said.returncode == 0, said.stderr
    [line] = [line for line in said.stdout.splitlines() if "OUTLIVE_TOKEN=" in line]
    assert line.startswith(f"  export OUTLIVE_URL={running.endpoint['url']} OUTLIVE_TOKEN=")
    token = line.rpartition("=")[2]
    shown = running.run("principal", "show", OUTLIVE_TOKEN=token)
    assert "anna" in shown.stdout
    assert "observe, type, take" in shown.stdout
    listed = running.run("principals").stdout
    assert "anna" in listed
    assert token not in listed
    id = document(running, "principal", "show", "anna")["id"]
    assert running.run("principal", "delete", id).stdout == f"deleted: {id}\n"


def test_wrong_use_is_said(running: Home) -> None:
    assert running.run("principal", "create", "ben").returncode == 2
    assert running.run("principal", "create", "ben", "--kind", "robot").returncode == 2
    assert running.run("principal", "create", "owner", "--kind", "person").returncode == 1
    assert running.run("principal", "delete", "owner").returncode == 1
    assert running.run("principal", "delete", "nobody").returncode == 3
