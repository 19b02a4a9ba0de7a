"""From settings to a Temporal client. The only place that says how we reach Temporal; `temporal_worker` has workers.

Every connection has a deadline, and what goes wrong is one of our errors. The embedded server's address is in a file
under home that the supervisor writes; see `processes/temporal_server.py`.
"""

import ipaddress
import os
from datetime import timedelta
from functools import cache
from pathlib import Path

import anyio
import anyio.to_thread
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.runtime import LoggingConfig, LoggingFormat, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import GrpcCompression, RPCError, TLSConfig

from outlive.base import InvalidError, UnavailableError
from outlive.wiring.sections import TemporalSettings
from outlive.wiring.settings import Places, Settings

_TRY_WITHIN_S = 5.0
_RETRY_EVERY_S = 0.05


def read_temporal_address(home: Places) -> str | None:
    """Where the embedded server of this home is; None if no stack runs here."""
    try:
        return home.temporal_address_path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


async def connect_temporal(settings: Settings, within_s: float | None = None, *, is_quiet: bool = False) -> Client:
    """A client that has reached the server, within `within_s` (by default `temporal.connect_within_s`). Raises
    `unavailable` if there is none. Quiet: for a process whose stdout is for something else than logs."""
    within_s = settings.temporal.connect_within_s if within_s is None else within_s
    trouble = "no stack runs here"
    with anyio.move_on_after(within_s):
        while True:
            address = settings.temporal.address or await anyio.to_thread.run_sync(read_temporal_address, settings)
            if address is not None:
                try:
                    with anyio.fail_after(_TRY_WITHIN_S):
                        return await _connect(settings.temporal, address, is_quiet=is_quiet)
                except (RuntimeError, RPCError) as error:  # the SDK has no class of its own for a failed connection
                    trouble = f"{address}: {_first_line(error)}"
                except TimeoutError:
                    trouble = f"{address}: no answer within {_TRY_WITHIN_S:g} s"
            await anyio.sleep(_RETRY_EVERY_S)
    raise UnavailableError(
        "temporal.away", f"Temporal does not answer ({trouble}). {_advice(settings.temporal)}", within_s=within_s
    )


async def connect_temporal_lazily(settings: Settings) -> Client | None:
    """A client that connects when it is first used: for a process that has to serve also while Temporal is away. None
    if nobody knows an address yet."""
    address = settings.temporal.address or await anyio.to_thread.run_sync(read_temporal_address, settings)
    return await _connect(settings.temporal, address, lazy=True) if address is not None else None


async def _connect(settings: TemporalSettings, address: str, *, lazy: bool = False, is_quiet: bool = False) -> Client:
    is_near = _is_loopback(address)
    return await Client.connect(
        address,
        namespace=settings.namespace,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        tls=await anyio.to_thread.run_sync(_tls, settings),
        data_converter=pydantic_data_converter,
        identity=f"{os.uname().nodename}/{os.getpid()}",
        connect_timeout=timedelta(seconds=_TRY_WITHIN_S),
        # On loopback a byte costs less than packing it.
        grpc_compression=GrpcCompression.NONE if is_near else GrpcCompression.GZIP,
        runtime=_runtime("ERROR" if is_quiet else "WARN"),
        lazy=lazy,
    )


@cache
def _runtime(level: str) -> Runtime:
    """One for the process. What its native part has to say are JSON lines on stdout. They do not pass through our logs:
    one that comes while Python ends would wait for Python, and Python for it, for ever."""
    said = LoggingConfig(filter=TelemetryFilter(core_level=level, other_level="ERROR"), format=LoggingFormat.JSON)
    return Runtime(telemetry=TelemetryConfig(logging=said))


def _tls(settings: TemporalSettings) -> TLSConfig | bool:
    if not settings.has_tls:
        return False
    return TLSConfig(
        server_root_ca_cert=_read(settings.tls_ca, "tls_ca"),
        client_cert=_read(settings.tls_cert, "tls_cert"),
        client_private_key=_read(settings.tls_key, "tls_key"),
        domain=settings.tls_server_name,
    )


def _read(path: Path | None, name: str) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidError(
            "temporal.unreadable", f"{str(path)!r} (temporal.{name}) cannot be read: {error.strerror}."
        ) from None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _advice(settings: TemporalSettings) -> str:
    if settings.is_embedded:
        return "Start the stack with: outlive up. If it runs, see logs/temporal.log under home."
    return "Check the settings temporal.address, temporal.namespace and its TLS."
