"""`outlive base`: made with progress on stderr and the answer alone on stdout, listed, and removed."""

import json
from pathlib import Path

import pytest

from integration.machine.bases.archives import Entry, tar_of
from outlive.cli.exit import DONE, NOT_FOUND, WRONG_USE
from outlive.cli.main import run


@pytest.fixture
def at(cache: Path) -> list[str]:
    return ["--cache", str(cache)]


def test_a_base_is_ensured_listed_and_removed(
    at: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive.tar"
    archive.write_bytes(tar_of([Entry("bin/tool", b"tool")]))
    assert run(["base", "ensure", f"tar:{archive}", *at, "--json"]) == DONE
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert "unpacking" in shown.err
    assert (tmp_path / "runtimes" / made["runtime"] / "tree" / "bundle").is_file()

    assert run(["base", "ensure", f"tar:{archive}", *at]) == DONE
    assert capsys.readouterr() == (f"{made['key']}\n", ""), "the second time nothing is made"

    assert run(["base", "list", *at, "--json"]) == DONE
    [item] = json.loads(capsys.readouterr().out)["items"]
    assert item["key"] == made["key"]
    assert item["reference"] == f"tar:{archive}"
    assert Path(item["layers"][0], "bin/tool").read_bytes() == b"tool"

    assert run(["base", "remove", made["key"], *at, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out) == {"removed": made["key"]}
    assert run(["base", "list", *at]) == DONE
    assert "no bases yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["remove", "0" * 32], NOT_FOUND),
        (["remove", "../../etc"], WRONG_USE),
        (["ensure", "ubuntu"], WRONG_USE),
        (["ensure", "tar:/missing"], NOT_FOUND),
    ],
)
def test_a_wrong_use_is_told_with_its_exit_code(
    arguments: list[str], code: int, at: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["base", *arguments, *at]) == code
    assert capsys.readouterr().err.count("error: ") == 1


def test_bases_are_kept_where_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTLIVE_MACHINES__CACHE", str(tmp_path / "elsewhere"))
    (tmp_path / "a").mkdir()
    assert run(["base", "ensure", f"dir:{tmp_path / 'a'}", "--json"]) == DONE
    made = json.loads(capsys.readouterr().out)
    assert (tmp_path / "elsewhere" / "bases" / made["key"]).is_dir()
    assert (tmp_path / "elsewhere" / "runtimes" / made["runtime"]).is_dir()
