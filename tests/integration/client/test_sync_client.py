"""The sync client does what the async one does, stops at Ctrl-C, and leaves nothing running behind."""

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from integration.stack.homes import Home
from outlive.base import ConflictError, NotFoundError
from outlive.client import (
    AsyncClient,
    AsyncConversation,
    AsyncConversations,
    Client,
    Conversation,
    Conversations,
    Following,
    View,
)
from outlive.client.following import SILENCE_S


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("sync") / "home", OUTLIVE_LOOP__ENABLED="false")
    home.up()
    yield home
    home.stop()


@pytest.fixture
def client(running: Home) -> Iterator[Client]:
    with Client(running.endpoint["url"], running.endpoint["token"]) as client:
        yield client


def public(cls: type) -> dict[str, list[tuple[str, object]]]:
    """The public methods of a class, with their parameters and defaults."""
    return {
        name: [(each.name, each.default) for each in inspect.signature(member).parameters.values()]
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("sync", "twin", "only_async"),
    [
        (Client, AsyncClient, {"aclose"}),
        (Conversations, AsyncConversations, {"pages"}),  # lists without a limit
        (Conversation, AsyncConversation, {"events_page"}),
    ],
)
def test_the_sync_form_has_every_method_with_the_same_parameters(sync: type, twin: type, only_async: set[str]) -> None:
    wanted = {name: parameters for name, parameters in public(twin).items() if name not in only_async}
    assert {name: parameters for name, parameters in public(sync).items() if name != "close"} == wanted


def test_every_call_works_without_async(client: Client) -> None:
    made = client.conversations.create(title="sync words", metadata={"a": [1]})
    sent = made.send("Hello", attachments=[{"name": "a.txt", "media_type": "text/plain", "data": b"bytes"}])
    assert made.head == 1
    assert made.refresh().head == sent.seq == 2
    assert [event.type for event in made.events()] == ["conversation.created", "message.sent"]
    assert [event.seq for event in made.events(after=1)] == [2]
    assert client.conversations.get(made.id).metadata == {"a": [1]}
    assert made.id in [each.id for each in client.conversations.list(limit=None)]
    assert [each.id for each in client.conversations.search("sync words")] == [made.id]
    follow_up = made.send("More", when="now")
    assert [each.id for each in made.queue()] == [sent.message_id, follow_up.message_id]
    made.order_queue([follow_up.message_id, sent.message_id])
    assert [each.text for each in made.withdraw(sent.message_id)] == ["More"]
    fork = made.fork(at=1)
    assert fork.parent == {"conversation": made.id, "at": 1}
    fork.archive()
    assert fork.is_archived
    assert fork.id not in [each.id for each in client.conversations.list(limit=None)]
    assert fork.id in [each.id for each in client.conversations.list(limit=None, archived=True)]
    with pytest.raises(ConflictError) as refused:
        fork.send("too late")
    assert refused.value.code == "conversation.archived"
    with pytest.raises(NotFoundError):
        client.conversations.get("conv_" + "0" * 32)


def test_pages_are_read_on_until_the_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlive.client.conversations.LIST_PAGE", 2)
    for _ in range(5):
        client.conversations.create(title="paged")
    assert len(client.conversations.search("paged", limit=None)) == 5
    assert len(client.conversations.search("paged", limit=3)) == 3


def test_follow_is_a_plain_iterator_that_can_be_left_and_taken_up_again(client: Client) -> None:
    made = client.conversations.create()
    for number in range(5):
        made.send(str(number))
    view = View()
    for event in made.follow():
        view.fold(event)
        if event.seq == 3:
            break
    for event in made.follow(after=view.position):
        view.fold(event)
        if event.seq == 6:
            break
    assert view.items() == [*made.transcript().items]


def test_a_conversation_works_on_when_the_client_it_came_from_is_forgotten(running: Home) -> None:
    made = Client(running.endpoint["url"], running.endpoint["token"]).conversations.create(title="alone")
    assert made.send("still here").seq == 2


def test_a_closed_client_says_so_and_its_thread_is_gone(running: Home) -> None:
    client = Client(running.endpoint["url"], running.endpoint["token"])
    made = client.conversations.create()
    assert any(thread.name == "outlive-client" for thread in threading.enumerate())
    client.close()
    client.close()
    assert not any(thread.name == "outlive-client" for thread in threading.enumerate())
    with pytest.raises(ConflictError, match="closed"):
        made.send("too late")


def test_the_default_silence_is_three_times_the_servers_ping() -> None:
    assert SILENCE_S == 45.0
    assert inspect.signature(Following).parameters["silence_s"].default == SILENCE_S


FOLLOW_FOR_EVER = """
from outlive import Client
made = Client().conversations.create(title="waits")
made.send("Hello")
try:
    for event in made.follow():
        print(event.type, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(made.refresh().head, flush=True)
"""


def environment(home: Home) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    return {**kept, "OUTLIVE_HOME": str(home.path)}


def complaints(said: str) -> list[str]:
    """What a program says on stderr, but for asyncio's remark that a busy host was slow (its debug mode makes it)."""
    return [line for line in said.splitlines() if not (line.startswith("Executing <") and line.endswith(" seconds"))]


def test_ctrl_c_ends_a_sync_follow_and_the_client_works_on(running: Home) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", FOLLOW_FOR_EVER],
        env=environment(running),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["conversation.created", "message.sent"]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    assert rest.split() == ["interrupted", "2"]
    assert complaints(errors) == []
    assert process.returncode == 0


def test_a_program_that_never_closes_its_client_ends_clean(running: Home) -> None:
    program = "from outlive import Client\nclient = Client()\nprint(len(client.conversations.list(limit=1)))\n"
    program += (
        "made = client.conversations.create()\nmade.send('x')\nevents = made.follow()\nprint(next(events).type)\n"
    )
    result = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        env=environment(running),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, complaints(result.stderr)) == (0, [])
    assert result.stdout.splitlines()[-1] == "conversation.created"


def test_the_package_hands_out_the_client_only_when_asked() -> None:
    program = (
        "import outlive, sys\n"
        "assert 'outlive.client' not in sys.modules\n"
        "assert outlive.__version__.count('.') == 2\n"
        "from outlive import AsyncClient, Client\n"
        "assert 'outlive.conversation' not in sys.modules and 'outlive.storage' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
