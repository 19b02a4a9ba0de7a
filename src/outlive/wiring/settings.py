"""One typed tree of settings, read once. Strongest first: flags, environment, TOML file, defaults.

Rule 1: what is not known is refused, by name: a misspelt setting never silently does nothing.
Rule 2: a secret is a `SecretStr`; no error, log line or dump made here shows one, nor a URL that may carry a password.
Each setting is described in `docs/reference/settings.md`, and a test holds the page to this file.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from outlive.base import InvalidError

PREFIX = "OUTLIVE_"
CONFIG_VARIABLE = "OUTLIVE_CONFIG"
HOME_VARIABLE = "OUTLIVE_HOME"
_NO_SECTIONS = frozenset({"HOME", "CONFIG", "URL", "TOKEN", "CRASH_AT"})  # all other variables are of a section
DEFAULT_HOME = Path("~/.outlive")
DEFAULT_PORT = 8484

Tree = Mapping[str, object]


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # `~` of a user that has no entry in the password file, as in some containers
        raise ValueError(f"this user has no home folder: set {HOME_VARIABLE}") from None


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ApiSettings(_Section):
    host: str = Field("127.0.0.1", min_length=1, description="Address that the API listens on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port that the API listens on; 0 takes a free one.")
    tls_cert: AbsolutePath | None = Field(None, description="Certificate (PEM, with its chain): the API speaks HTTPS.")
    tls_key: AbsolutePath | None = Field(None, description="Private key of the certificate (PEM).")
    token: SecretStr | None = Field(
        None,
        min_length=32,
        description="The owner's token. By default one is made at the first start and kept in endpoint.json; set it "
        "(the same on every host) when several hosts share a database.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Names that clients may call this server by (the `Host` header), besides loopback, `host` and this "
        "host's own name and addresses. Needed behind a proxy or a DNS name.",
    )
    allow_cleartext_network: bool = Field(
        False,
        description="Listen on a network address without TLS. The token and everything said then cross the network "
        "readable by anyone on the path.",
    )

    @model_validator(mode="after")
    def _pair(self) -> "ApiSettings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both, or none")
        return self

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None


def _one_of(*schemes: str) -> AfterValidator:
    def check(url: SecretStr) -> SecretStr:
        if urlsplit(url.get_secret_value()).scheme not in schemes and url.get_secret_value() not in schemes:
            raise ValueError(f"must be {' or '.join(schemes)}")
        return url

    return AfterValidator(check)


class DatabaseSettings(_Section):
    url: Annotated[SecretStr, _one_of("sqlite", "postgresql")] = Field(
        SecretStr("sqlite"),
        description="`sqlite` (a file under home), `sqlite:/path/to/file`, or `postgresql://user:password@host/name`.",
    )


class FeedSettings(_Section):
    url: Annotated[SecretStr, _one_of("local", "redis", "rediss", "unix")] = Field(
        SecretStr("local"), description="`local` (a broker on a unix socket under home), or `redis://host:port/0`."
    )


class ObjectSettings(_Section):
    url: Annotated[SecretStr, _one_of("file", "s3")] = Field(
        SecretStr("file"), description="`file` (a folder under home), `file:/path/to/folder`, or `s3://bucket/prefix`."
    )
    endpoint: str | None = Field(None, description="Address of an S3 server that is not Amazon's.")
    region: str | None = Field(None, description="Region of the bucket.")
    access_key: SecretStr | None = Field(None, description="S3 access key.")
    secret_key: SecretStr | None = Field(None, description="S3 secret key.")


class SupervisorSettings(_Section):
    restarts: int = Field(5, ge=0, description="Deaths of one process within `window_s` after which it is restarted.")
    window_s: float = Field(60.0, gt=0, description="Seconds over which deaths are counted.")
    first_delay_s: float = Field(0.1, ge=0, description="Seconds before the first restart; doubles with each death.")
    max_delay_s: float = Field(5.0, ge=0, description="Most seconds before a restart.")
    well_after_s: float = Field(
        5.0, ge=0, description="Seconds after which a process that is ready counts as well: then its death is forgiven."
    )
    log_bytes: int = Field(10_000_000, ge=10_000, description="Size at which a log file is moved aside (one is kept).")


class TemporalSettings(_Section):
    address: str | None = Field(
        None,
        pattern=r"^[^\s/]+:\d{1,5}$",
        description="`host:port` of a Temporal cluster. Not given: `outlive up` runs a server of its own.",
    )
    namespace: str = Field("default", min_length=1, description="Temporal namespace.")
    tls: bool = Field(False, description="Speak TLS with the cluster. A certificate or an API key turns it on too.")
    tls_ca: AbsolutePath | None = Field(None, description="Authorities that vouch for the cluster (PEM).")
    tls_cert: AbsolutePath | None = Field(None, description="Our certificate towards the cluster (PEM).")
    tls_key: AbsolutePath | None = Field(None, description="Private key of our certificate (PEM).")
    tls_server_name: str | None = Field(None, description="Name in the cluster's certificate, if not the address's.")
    api_key: SecretStr | None = Field(None, min_length=1, description="API key of the cluster.")
    connect_within_s: float = Field(30.0, gt=0, description="Seconds in which Temporal has to answer a process.")
    port: int = Field(
        0, ge=0, le=65535, description="Loopback port of the server that `outlive up` runs; 0 takes a free one."
    )

    @model_validator(mode="after")
    def _pair(self) -> "TemporalSettings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both, or none")
        return self

    @property
    def is_embedded(self) -> bool:
        return self.address is None

    @property
    def has_tls(self) -> bool:
        return self.tls or self.tls_ca is not None or self.tls_cert is not None or self.api_key is not None


class WorkerSettings(_Section):
    activities: int = Field(100, ge=1, description="Activities that a worker runs at the same time.")
    workflow_tasks: int = Field(100, ge=2, description="Workflow tasks that a worker runs at the same time.")
    cached_workflows: int = Field(1000, ge=0, description="Workflows that a worker keeps in memory between tasks.")
    grace_s: float = Field(5.0, ge=0, le=8, description="Seconds that activities have to end in when a worker stops.")


class NodeSettings(_Section):
    path: AbsolutePath | None = Field(None, description="Folder of the node's own state; by default `node` under home.")
    address: str | None = Field(
        None,
        description="Where this node serves the API: `https://host:port` (and the next port) or `unix:/path`; by "
        "default a socket under home.",
    )
    token: SecretStr | None = Field(
        None, description="What the API shows to nodes: the same on all hosts; by default made and kept under home."
    )
    tls_cert: AbsolutePath | None = Field(None, description="Certificate (PEM) that this node serves with.")
    tls_key: AbsolutePath | None = Field(None, description="Its private key (PEM).")
    tls_ca: AbsolutePath | None = Field(
        None, description="Authority (PEM) that signed the nodes' certificates; by default those the host trusts."
    )
    lease_s: float = Field(20.0, ge=1, description="Seconds without contact after which a node freezes its machines.")
    heartbeat_s: float = Field(5.0, gt=0, description="Seconds between two renewals of a node's lease.")
    margin_s: float = Field(
        10.0, ge=0, description="Seconds after the end of a node's lease before its machines come up elsewhere."
    )


class MachineSettings(_Section):
    enabled: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether this host runs machines: `auto` if it can (root, and runsc is installed), `on` refuses to "
        "start if it cannot.",
    )
    runsc: str = Field("runsc", min_length=1, description="Name or path of gVisor's runsc.")
    limit: int = Field(64, ge=1, le=10_000, description="Machines that are up on this host at the same time.")
    cache: AbsolutePath = Field(
        Path("/var/lib/outlive"), description="Folder of bases and guest runtimes, shared by all homes of this host."
    )
    freeze_after_s: float = Field(30.0, ge=0, description="Idle seconds before a machine is frozen; 0: never.")
    hibernate_after_s: float = Field(600.0, ge=0, description="Idle seconds before a machine is hibernated; 0: never.")
    checkpoint_every_s: float = Field(
        600.0, ge=0, description="Seconds between two checkpoints of a machine that is in use; 0: none by interval."
    )


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
        return _absolute(Path(path)) if path else default


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
        path = _absolute(Path(named))
        if not path.is_file():
            raise InvalidError("settings.no_file", f"{CONFIG_VARIABLE} names {str(path)!r}, and there is no such file.")
        return path
    home = given.get("home") or os.environ.get(HOME_VARIABLE) or DEFAULT_HOME
    return _expand_home(home) / "outlive.toml"


def _expand_home(named: object) -> Path:
    try:
        return _absolute(Path(str(named)))
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
