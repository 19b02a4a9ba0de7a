"""Globs, paths, kinds of files, terminals: what tools decide by looking at names."""

from datetime import UTC, datetime

import pytest

from outlive.base import ConversationId, EffectId, InvalidError, MachineId, PrincipalId, derive, new_machine_id
from outlive.conversation.events import MachineHibernated, MachineRolledBack, TurnRecovered
from outlive.loop.tools.checkout import Repo, checkout_id, checkout_request, failure_text, repo_of
from outlive.loop.tools.media import media_type_of
from outlive.loop.tools.notices import notice_of
from outlive.loop.tools.paths import as_shown, in_machine
from outlive.loop.tools.search import fits
from outlive.loop.tools.terminals import terminal_id, usable
from outlive.machine.status import Effect, EventKind, MachineEvent
from outlive.machine.terminal.status import Terminal

NOW = datetime(2030, 1, 2, tzinfo=UTC)
MACHINE = new_machine_id()


@pytest.mark.parametrize(
    ("glob", "fitting", "other"),
    [
        ("*.py", ["a.py", "x/a.py"], ["a.pyc", "a.py/b"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.md"]),
        ("src/**", ["src/a", "src/b/c"], ["a/src", "srcs/a"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py"]),
        ("./src/**/test_?.py", ["src/test_1.py", "src/x/y/test_2.py"], ["src/test_10.py"]),
        ("[ab].txt", ["a.txt", "x/b.txt"], ["c.txt"]),
        ("[", ["["], ["a"]),
        ("**", ["a", "a/b"], []),
    ],
)
def test_a_glob_means_what_it_means_to_a_shell(glob: str, fitting: list[str], other: list[str]) -> None:
    assert [path for path in fitting + other if fits(path, glob)] == fitting


def test_no_glob_takes_for_ever() -> None:
    assert not fits("/".join(["a" * 200] * 20), "/".join(["**", "*a" * 100 + "b"] * 2))


@pytest.mark.parametrize(
    ("path", "there", "shown"),
    [
        ("", "/workspace", "."),
        ("a/../b", "/workspace/b", "b"),
        ("/etc/hosts", "/etc/hosts", "/etc/hosts"),
        ("/workspace/a", "/workspace/a", "a"),
        ("../tmp", "/tmp", "/tmp"),
    ],
)
def test_a_path_is_taken_from_the_working_directory(path: str, there: str, shown: str) -> None:
    assert (in_machine(path), as_shown(in_machine(path))) == (there, shown)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.DIFF", b"", "text/x-diff"),
        ("Makefile", "ä".encode() * 8_000, "text/plain"),
        ("Makefile", b"x" + "ä".encode() * 8_000, "text/plain"),
        ("a", b"\x00", "application/octet-stream"),
        ("a", b"\xff\xfe", "application/octet-stream"),
        ("odd.thing", b"text", "text/plain"),
    ],
)
def test_a_file_is_known_by_its_name_or_what_is_in_it(name: str, content: bytes, kind: str) -> None:
    assert media_type_of(name, content) == kind


def line(kind: EventKind, **data: object) -> MachineEvent:
    return MachineEvent(kind=kind, at=NOW, generation=2, data=data)


def test_of_a_machines_history_that_is_said_which_concerns_a_conversation() -> None:
    told = {kind: [news.type for news in notice_of(MACHINE, line(kind, effects=[]))] for kind in ALL_KINDS}
    assert told == {
        **{kind: [] for kind in ALL_KINDS},
        "hibernated": ["machine.hibernated"],
        "woken": ["machine.woken"],
        "rebooted": ["machine.rebooted", "turn.recovered"],
        "rolled_back": ["machine.rolled_back", "turn.recovered"],
        "lost": ["machine.lost", "turn.recovered"],
    }
    assert notice_of(MACHINE, line("hibernated", checkpoint="ckpt_1")) == (MachineHibernated(machine=MACHINE),)
    back, mended = notice_of(MACHINE, line("rolled_back", checkpoint="ckpt_1", effects=["eff_1", "eff_2"]))
    assert back == MachineRolledBack(machine=MACHINE, checkpoint="ckpt_1", effects=["eff_1", "eff_2"])
    assert isinstance(mended, TurnRecovered)
    assert "2 of its effects" in mended.reason


ALL_KINDS: tuple[EventKind, ...] = (
    "created",
    "booted",
    "rebooted",
    "rolled_back",
    "checkpointed",
    "hibernated",
    "woken",
    "paused",
    "resumed",
    "lost",
    "failed",
    "deleted",
)


def test_a_repository_is_named_in_one_way() -> None:
    blob = "b3_" + "0" * 64
    assert repo_of({}) is None
    assert repo_of({"repo": {"blob": blob, "ref": "main"}}) == Repo(blob=blob, ref="main")
    assert repo_of({"repo": {"url": "https://example.org/a.git"}}) == Repo(url="https://example.org/a.git")
    for wrong in (
        {},
        {"url": "a", "blob": blob},
        {"blob": "x"},
        {"url": "--upload-pack=x"},
        {"url": "a", "ref": "-b"},
        {"url": "a", "ref": "a b"},
        "x",
    ):
        with pytest.raises(InvalidError):
            repo_of({"repo": wrong})  # type: ignore[dict-item]


def test_a_checkout_is_the_same_request_each_time_and_another_in_number() -> None:
    of = ConversationId(derive("conv", MACHINE))
    repo = Repo(url="https://example.org/a.git")
    assert checkout_request(repo, checkout_id(of, 1)) == checkout_request(repo, checkout_id(of, 1))
    assert checkout_id(of, 1) != checkout_id(of, 2)


def test_a_checkout_that_egress_forbids_says_so() -> None:
    said = "fatal: unable to access 'https://example.org/a.git/': CONNECT tunnel failed, response 403"
    effect = Effect(
        machine=MACHINE,
        id=EffectId("e"),
        n=1,
        digest="",
        generation=1,
        state="finished",
        exit_code=128,
        stderr=said,
        started_at=NOW,
    )
    text = failure_text(Repo(url="https://example.org/a.git"), effect)
    assert said in text
    assert "egress" in text


def test_an_agent_types_into_the_first_terminal_that_can_be_typed_into() -> None:
    ids = [terminal_id(MACHINE, n) for n in (1, 2, 3)]
    assert len(set(ids)) == 3
    assert usable(MACHINE, {}, set()) == ids[0]
    opened = {ids[0]: terminal(ids[0], "open")}
    assert usable(MACHINE, opened, set()) == ids[0]
    assert usable(MACHINE, opened, {ids[0]}) == ids[1]
    ended = {ids[0]: terminal(ids[0], "exited"), ids[1]: terminal(ids[1], "lost")}
    assert usable(MACHINE, ended, set()) == ids[2]


def terminal(id: str, state: str) -> Terminal:
    return Terminal.model_validate(
        {
            "id": id,
            "machine": MachineId(MACHINE),
            "name": id,
            "owner": PrincipalId("prin_1"),
            "state": state,
            "created_at": NOW,
            "changed_at": NOW,
        }
    )
