"""The sections of the tree of settings: each setting with its type, its bound, its default and what it is.

Each is described in `docs/reference/settings.md`, and a test holds the page to this file.
"""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

HOME_VARIABLE = "OUTLIVE_HOME"
DEFAULT_PORT = 8484


def absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # `~` of a user that has no entry in the password file, as in some containers
        raise ValueError(f"this user has no home folder: set {HOME_VARIABLE}") from None


AbsolutePath = Annotated[Path, AfterValidator(absolute)]


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
    cached_workflows: int = Field(500, ge=0, description="Workflows that a worker keeps in memory between tasks.")
    grace_s: float = Field(5.0, ge=0, le=8, description="Seconds that activities have to end in when a worker stops.")


class LoopSettings(_Section):
    enabled: bool = Field(True, description="Whether turns are run. Without, messages are only recorded.")
    model: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Model (`provider:name`) of agents that name none; by default one of the first provider whose key "
        "is set, else the demo model.",
    )
    steps: int = Field(200, ge=1, le=10_000, description="Steps of one turn, after which it ends as failed.")
    tools_at_once: int = Field(8, ge=1, le=100, description="Independent tool calls of one answer that run at once.")
    tool_wait_s: float = Field(
        60.0, gt=0, le=86_400, description="Seconds that a call of a user's tool waits for a worker that has it."
    )
    context_tokens: int = Field(
        150_000, ge=2_000, description="Tokens (estimated) of a conversation that a model is told; older parts go."
    )
    answer_tokens: int = Field(16_384, ge=16, description="Tokens of one answer.")
    result_bytes: int = Field(32_768, ge=1_000, description="Bytes of one tool result that a model is told.")
    stall_s: float = Field(60.0, gt=0, description="Seconds that a provider may be silent in the middle of an answer.")
    sweep_s: float = Field(15.0, gt=0, description="Seconds between two looks for turns that run nowhere.")
    demo_pace_s: float = Field(0.03, ge=0, le=10, description="Seconds between two words of the built-in demo model.")


class ApprovalSettings(_Section):
    webhook_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        max_length=2_000,
        description="Where it is posted that an approval is asked for, in the form of Standard Webhooks.",
    )
    webhook_secret: SecretStr | None = Field(
        None, min_length=24, description="Signs what is posted there: `whsec_` and base64, or any text."
    )

    @model_validator(mode="after")
    def _pair(self) -> "ApprovalSettings":
        if (self.webhook_url is None) != (self.webhook_secret is None):
            raise ValueError("webhook_url and webhook_secret go together: set both, or none")
        return self


class McpSettings(_Section):
    allowed_hosts: tuple[str, ...] = Field(
        (),
        max_length=1_000,
        description="Hosts (`host:port`, as in egress rules) at which workers may ask MCP servers. Addresses that are "
        "not public have to be listed as such.",
    )


def _printable(token: SecretStr) -> SecretStr:
    text = token.get_secret_value()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError("is sent in a header: printable ASCII without spaces")
    return token


class NodeSettings(_Section):
    path: AbsolutePath | None = Field(None, description="Folder of the node's own state; by default `node` under home.")
    address: str | None = Field(
        None,
        description="Where this node serves the API: `https://host:port` (and the next port) or `unix:/path`; by "
        "default a socket under home.",
    )
    token: Annotated[SecretStr, AfterValidator(_printable)] | None = Field(
        None,
        min_length=32,
        description="What the API shows to nodes: the same on all hosts; by default made and kept under home.",
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

    @model_validator(mode="after")
    def _pair(self) -> "NodeSettings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both, or none")
        # One without the other would serve in the clear what callers take for TLS, or TLS to who expects none.
        if (self.address or "").startswith("https:") != (self.tls_cert is not None):
            raise ValueError("an https address and tls_cert with tls_key go together: set all of them, or none")
        return self


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
    base_paths: tuple[AbsolutePath, ...] = Field(
        (), description="Folders of this host that `dir:`, `tar:` and `oci:` bases of environments may be in."
    )
    freeze_after_s: float = Field(30.0, ge=0, description="Idle seconds before a machine is frozen; 0: never.")
    hibernate_after_s: float = Field(600.0, ge=0, description="Idle seconds before a machine is hibernated; 0: never.")
    checkpoint_every_s: float = Field(
        600.0, ge=0, description="Seconds between two checkpoints of a machine that is in use; 0: none by interval."
    )
