"""One typed tree of settings, read once. Strongest first: flags, environment, TOML file, defaults.

Rule 1: what is not known is refused, by name: a misspelt setting never silently does nothing.
Rule 2: a secret is a `SecretStr`; no error, log line or dump made here shows one, nor a URL that may carry a password.
The settings themselves are in `sections.py`.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from outlive.base import InvalidError
from outlive.wiring.sections import (
    HOME_VARIABLE,
    AbsolutePath,
    ApiSettings,
    ApprovalSettings,
    DatabaseSettings,
    FeedSettings,
    LoopSettings,
    MachineSettings,
    NodeSettings,
    ObjectSettings,
    SupervisorSettings,
    TemporalSettings,
    WorkerSettings,
    absolute,
)

PREFIX = "OUTLIVE_"
CONFIG_VARIABLE = "OUTLIVE_CONFIG"
_NO_SECTIONS = frozenset({"HOME", "CONFIG", "URL", "TOKEN", "CRASH_AT", "CRASH_FOLDER"})  # all others are of a section
DEFAULT_HOME = Path("~/.outlive")

Tree = Mapping[str, object]


class Places:
    """Where things are under home. Nothing else puts a path together."""

    home: Path

    @property
    def endpoint_path(self) -> Path:
        return self.home / "endpoint.json"

    @property
    def run_path(self) -> Path:
        return self.home / "run"

    @property
    def logs_path(self) -> Path:
        return self.home / "logs"

    @property
    def feed_socket_path(self) -> Path:
        return self.run_path / "feed.sock"

    @property
    def node_socket_path(self) -> Path:
        """Where the embedded node serves the API; its raw connections are beside."""
        return self.run_path / "node.sock"

    @property
    def node_token_path(self) -> Path:
        """Holds what the API shows to the node when the settings name no token."""
        return self.home / "node.token"

    @property
    def temporal_path(self) -> Path:
        """Folder of the embedded Temporal server's database."""
        return self.home / "temporal"

    @property
    def temporal_address_path(self) -> Path:
        """Says where the embedded Temporal server is while a stack runs."""
        return self.run_path / "temporal.address"


@dataclass(frozen=True)
class Home(Places):
    """The places alone: for what has to work whatever the other settings say."""

    home: Path


class Settings(Places, BaseSettings):
    """Made by `read_settings`, which turns every complaint into one sentence."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True, extra="forbid", frozen=True
    )
    file: ClassVar[Tree] = {}

    home: AbsolutePath = Field(DEFAULT_HOME, validate_default=True, description="Folder that everything is kept in.")
    api: ApiSettings = ApiSettings()
    database: DatabaseSettings = DatabaseSettings()
    feed: FeedSettings = FeedSettings()
    objects: ObjectSettings = ObjectSettings()
    supervisor: SupervisorSettings = SupervisorSettings()
    temporal: TemporalSettings = TemporalSettings()
    worker: WorkerSettings = WorkerSettings()
    loop: LoopSettings = LoopSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    node: NodeSettings = NodeSettings()
    machines: MachineSettings = MachineSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=dict(cls.file))

    @property
    def sqlite_path(self) -> Path | None:
        """The database file, if the database is SQLite."""
        return self._path_of(self.database.url, "sqlite", self.home / "outlive.db")

    @property
    def objects_path(self) -> Path | None:
        """The folder of the object store, if it is a folder."""
        return self._path_of(self.objects.url, "file", self.home / "objects")

    @property
    def node_path(self) -> Path:
        """The folder of the node's own state."""
        return self.node.path or self.home / "node"

    @property
    def has_local_feed(self) -> bool:
        return self.feed.url.get_secret_value() == "local"

    def _path_of(self, url: SecretStr, scheme: str, default: Path) -> Path | None:
        text = url.get_secret_value()
        if not (text == scheme or text.startswith(f"{scheme}:")):
            return None
        path = text.removeprefix(scheme).removeprefix(":").removeprefix("//")
        return absolute(Path(path)) if path else default


def read_settings(flags: Tree | None = None) -> Settings:
    """The settings in force. `flags` is a tree as in the TOML file; `None` in it stands for: not given."""
    _refuse_unknown_variables()
    given = _without_none(flags or {})
    path = _config_path(given)
    tree = _read_toml(path)

    class FromFile(Settings):
        file: ClassVar[Tree] = tree

    try:
        settings = FromFile(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InvalidError("settings.invalid", _say(error, given, path, tree)) from None
    except SettingsError as error:
        raise InvalidError("settings.invalid", f"The environment cannot be read: {error}.") from None
    if "home" in tree and CONFIG_VARIABLE not in os.environ and settings.home != path.parent:
        raise InvalidError(
            "settings.home_moved",
            f"{path} names another home than the one it lies in: remove `home` there, and set {HOME_VARIABLE}.",
        )
    return settings


def find_home(flags: Tree | None = None) -> Home:
    """The home in force, also when some other setting is wrong: a stack must be stoppable then."""
    given = _without_none(flags or {})
    path = _config_path(given)
    named = given.get("home") or os.environ.get(HOME_VARIABLE) or _read_toml(path).get("home") or DEFAULT_HOME
    return Home(_expand_home(named))


def _refuse_unknown_variables() -> None:
    """A misspelt variable is told. Below a section Pydantic looks itself; here are the names it would pass over."""
    sections = {name.upper() for name in Settings.model_fields} - {"HOME"}
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(PREFIX)
        if not value or name == variable.upper() or name in _NO_SECTIONS or name.partition("__")[0] in sections:
            continue
        raise InvalidError(
            "settings.invalid",
            f"The environment variable {variable} is not a setting. (Between section and name are two underscores, as "
            f"in {PREFIX}API__PORT.) All settings: docs/reference/settings.md.",
            variable=variable,
        )


def _without_none(tree: Tree) -> dict[str, object]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if value is not None
    }


def _config_path(given: Tree) -> Path:
    if named := os.environ.get(CONFIG_VARIABLE):
        path = absolute(Path(named))
        if not path.is_file():
            raise InvalidError("settings.no_file", f"{CONFIG_VARIABLE} names {str(path)!r}, and there is no such file.")
        return path
    home = given.get("home") or os.environ.get(HOME_VARIABLE) or DEFAULT_HOME
    return _expand_home(home) / "outlive.toml"


def _expand_home(named: object) -> Path:
    try:
        return absolute(Path(str(named)))
    except ValueError as error:
        raise InvalidError("settings.no_home", f"Where to keep things is not known: {error}.") from None


def _read_toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError("settings.malformed", f"{str(path)!r} is not TOML: {error}.") from None
    except OSError as error:
        raise InvalidError("settings.unreadable", f"{str(path)!r} cannot be read: {error.strerror}.") from None


def _say(error: ValidationError, given: Tree, path: Path, tree: Tree) -> str:
    """Every complaint, with the name of the setting and where it was found. Never the value: it may be secret."""
    lines = []
    for each in error.errors(include_input=False, include_url=False, include_context=False):
        names = [str(part) for part in each["loc"]]
        where = _find(names, given, path, tree)
        what = "is not a setting" if each["type"] == "extra_forbidden" else each["msg"].removeprefix("Value error, ")
        lines.append(f"{'.'.join(names)} ({where}): {what}")
    return "; ".join(lines) + ". All settings: docs/reference/settings.md."


def _find(names: list[str], given: Tree, path: Path, tree: Tree) -> str:
    """Where the value came from: the strongest source that has it."""
    if _has(given, names):
        return "given as a flag"
    variable = PREFIX + "__".join(names).upper()
    for known in os.environ:
        if known.upper() == variable or known.upper().startswith(f"{variable}__"):
            return f"environment variable {known}"
    return f"in {path}" if _has(tree, names) else "not given"


def _has(tree: object, names: list[str]) -> bool:
    for name in names:
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def prepare_home(settings: Settings) -> None:
    """Make the folders under home, closed to others. What is there already is left as it is."""
    try:
        for path in (settings.home, settings.run_path, settings.logs_path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidError(
            "settings.bad_home", f"{error.filename!r} cannot be made: {error.strerror}. Set {HOME_VARIABLE}."
        ) from None
