"""Settings: who wins, what is refused, what is never shown, and that all of them are documented."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from outlive.base import InvalidError
from outlive.wiring.settings import Settings, find_home, prepare_home, read_settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
SECRET = "do-not-show-this-secret-to-anybody-at-all"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import os

    for name in [name for name in os.environ if name.startswith("OUTLIVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path))
    return tmp_path


def _refusal(flags: dict[str, Any] | None = None) -> InvalidError:
    with pytest.raises(InvalidError) as refused:
        read_settings(flags)
    return refused.value


# ── who wins ──


def test_flags_beat_the_environment_which_beats_the_file_which_beats_defaults(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_settings().api.port == 8484
    (home / "outlive.toml").write_text('[api]\nport = 1\nhost = "localhost"')
    assert read_settings().api.port == 1
    monkeypatch.setenv("OUTLIVE_API__PORT", "2")
    assert read_settings().api.port == 2
    settings = read_settings({"api": {"port": 3, "host": None}})
    assert (settings.api.port, settings.api.host) == (3, "localhost")  # not given is not an answer


def test_a_config_file_can_be_elsewhere_and_must_then_exist(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "outlive.toml").write_text("[api]\nport = 1")
    other = tmp_path_factory.mktemp("other") / "my.toml"
    monkeypatch.setenv("OUTLIVE_CONFIG", str(other))
    assert _refusal().code == "settings.no_file"
    other.write_text("[api]\nport = 9")
    assert read_settings().api.port == 9


def test_a_config_file_elsewhere_may_name_the_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("other")
    (folder / "my.toml").write_text(f'home = "{folder}/home"')
    monkeypatch.setenv("OUTLIVE_CONFIG", str(folder / "my.toml"))
    monkeypatch.delenv("OUTLIVE_HOME")
    assert read_settings().home == folder / "home"


def test_a_file_in_the_home_cannot_move_it_away(home: Path) -> None:
    (home / "outlive.toml").write_text('home = "/elsewhere"')
    # The environment names this home and wins: nothing moves.
    assert read_settings().home == home


def test_a_file_in_the_default_home_cannot_move_it_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLIVE_HOME")
    monkeypatch.setenv("HOME", str(home))
    (home / ".outlive").mkdir()
    (home / ".outlive" / "outlive.toml").write_text('home = "/elsewhere"')
    assert _refusal().code == "settings.home_moved"


def test_paths_are_absolute_and_under_home_by_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("OUTLIVE_HOME", "here")
    settings = read_settings()
    assert settings.home == home / "here"
    assert settings.sqlite_path == home / "here" / "outlive.db"
    assert settings.objects_path == home / "here" / "objects"
    assert settings.has_local_feed


@pytest.mark.parametrize("url", ["sqlite:/x/y.db", "sqlite:///x/y.db"])
def test_a_sqlite_file_can_be_elsewhere(url: str) -> None:
    assert read_settings({"database": {"url": url}}).sqlite_path == Path("/x/y.db")


def test_other_substrates_are_chosen_by_url() -> None:
    settings = read_settings(
        {
            "database": {"url": "postgresql://h/x"},
            "feed": {"url": "redis://h"},
            "objects": {"url": "s3://bucket/prefix"},
        }
    )
    assert settings.sqlite_path is None
    assert settings.objects_path is None
    assert not settings.has_local_feed


def test_the_home_is_found_when_another_setting_is_wrong(home: Path) -> None:
    (home / "outlive.toml").write_text("[api]\nprot = 1")
    assert find_home().home == home
    assert find_home().run_path == home / "run"
    assert find_home({"home": "/x"}).home == Path("/x")


# ── what is refused ──


@pytest.mark.parametrize(
    ("toml", "name"), [("[api]\nprot = 1", "api.prot"), ("[apo]\nport = 1", "apo"), ("port = 1", "port")]
)
def test_an_unknown_key_in_the_file_is_named_with_the_file(home: Path, toml: str, name: str) -> None:
    (home / "outlive.toml").write_text(toml)
    refusal = _refusal()
    assert refusal.kind == "invalid"
    assert f"{name} (in {home / 'outlive.toml'}): is not a setting" in refusal.message


def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_API__PROT", "1")
    assert "environment variable OUTLIVE_API__PROT" in _refusal().message


@pytest.mark.parametrize("name", ["OUTLIVE_PROT", "OUTLIVE_API_PORT", "OUTLIVE_HOME__X", "OUTLIVE_APO__PORT"])
def test_a_variable_of_no_section_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, SECRET)
    refusal = _refusal()
    assert (refusal.kind, refusal.code) == ("invalid", "settings.invalid")
    assert name in refusal.message
    assert SECRET not in refusal.message
    assert find_home().home  # a stack can be stopped all the same
    monkeypatch.setenv(name, "")  # empty counts as unset
    read_settings()


def test_variables_that_are_read_elsewhere_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TOKEN", "CRASH_AT", "CRASH_FOLDER"):
        monkeypatch.setenv(f"OUTLIVE_{name}", "x")
    read_settings()


def test_a_wrong_value_is_named_with_its_source(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "outlive.toml").write_text('[api]\nport = "many"')
    assert f"api.port (in {home / 'outlive.toml'})" in _refusal().message
    monkeypatch.setenv("OUTLIVE_API__PORT", "99999")
    assert "api.port (environment variable OUTLIVE_API__PORT)" in _refusal().message
    assert "api.port (given as a flag)" in _refusal({"api": {"port": -1}}).message


@pytest.mark.parametrize("content", [b"[api", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_is_named(home: Path, content: bytes) -> None:
    (home / "outlive.toml").write_bytes(content)
    refusal = _refusal()
    assert refusal.code == "settings.malformed"
    assert "outlive.toml" in refusal.message


def test_a_variable_that_is_not_json_where_json_is_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_API__ALLOWED_HOSTS", "no json")
    assert _refusal().kind == "invalid"


@pytest.mark.parametrize(
    ("part", "url"), [("database", "mysql://h/x"), ("feed", "kafka://h"), ("objects", "ftp://h"), ("database", "")]
)
def test_a_substrate_that_there_is_no_backend_for_is_refused(part: str, url: str) -> None:
    assert f"{part}.url" in _refusal({part: {"url": url}}).message


def test_a_certificate_without_its_key_is_refused() -> None:
    assert "go together" in _refusal({"api": {"tls_cert": "/x"}}).message


@pytest.mark.parametrize(
    "node",
    [
        {"tls_cert": "/x"},
        {"address": "https://host:1"},  # it would serve in the clear
        {"address": "unix:/x", "tls_cert": "/x", "tls_key": "/x"},  # nobody speaks TLS there
        {"tls_cert": "/x", "tls_key": "/x"},
    ],
)
def test_a_node_has_a_certificate_with_its_key_at_an_https_address_and_only_there(node: dict[str, str]) -> None:
    assert "go together" in _refusal({"node": node}).message


@pytest.mark.parametrize("token", ["short", "é" * 40, "x" * 40 + "\r\ny: z", "a b" * 20])
def test_a_token_for_nodes_that_is_weak_or_fits_no_header_is_refused_and_not_shown(token: str) -> None:
    message = _refusal({"node": {"token": token}}).message
    assert "node.token" in message
    assert token not in message


def test_a_home_that_cannot_be_made_is_told_as_such(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(InvalidError, match="OUTLIVE_HOME"):
        prepare_home(read_settings({"home": home / "file" / "home"}))


def test_home_is_made_closed_to_others(home: Path) -> None:
    prepare_home(read_settings({"home": home / "new"}))
    assert {path.stat().st_mode & 0o777 for path in [home / "new", *(home / "new").iterdir()]} == {0o700}


# ── what is never shown ──


def test_no_secret_is_in_a_dump_or_in_an_error(home: Path) -> None:
    flags: dict[str, Any] = {
        "api": {"token": SECRET},
        "database": {"url": f"postgresql://u:{SECRET}@h/x"},
        "feed": {"url": f"redis://:{SECRET}@h"},
        "objects": {"url": "s3://b", "access_key": SECRET, "secret_key": SECRET},
    }
    settings = read_settings(flags)
    assert settings.objects.secret_key is not None
    assert settings.objects.secret_key.get_secret_value() == SECRET
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert SECRET not in shown
    flags["database"]["url"] = f"mysql://u:{SECRET}@h/x"
    flags["api"]["port"] = SECRET
    assert SECRET not in _refusal(flags).message


# ── that all are documented ──


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.default, field.description or ""


def _rows() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: rest.split(" | ") for name, rest in rows if rest.startswith("`OUTLIVE_")}


def test_every_setting_is_on_the_page_with_its_variable_and_default_and_nothing_else_is() -> None:
    rows = _rows()
    leaves = {name: default for name, default, _ in _leaves(Settings)}
    assert set(rows) == set(leaves)
    for name, default in leaves.items():
        variable, shown, *_ = rows[name]
        assert variable == f"`OUTLIVE_{name.upper().replace('.', '__')}`"
        assert shown == _default(default), name


def _default(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case SecretStr():
            return f"`{value.get_secret_value()}`"
        case ():
            return "`[]`"
        case _:
            return f"`{value}`"


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, _, description in _leaves(Settings) if not description] == []


def test_every_secret_is_marked_on_the_page() -> None:
    secret = {name for name, _, _ in _leaves(Settings) if "key" in name.split(".")[1:] or name.endswith("token")}
    for name in ("api.token", "database.url", "feed.url", "objects.access_key", "objects.secret_key", *secret):
        assert _rows()[name][-1].endswith("Secret."), name
