"""What a machine is made from: fixed when it is created, and the same after every wake, move and fork."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

User = Literal["agent", "root"]


class Limits(BaseModel):
    """What a machine may use. Each is enforced from outside and read back before the machine counts as running."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mib: int = Field(2_048, ge=64, le=1_048_576)
    cpus: float = Field(2.0, ge=0.05, le=512)
    threads: int = Field(4_096, ge=256, le=1_000_000)  # of the sandbox on the host; a process inside takes several
    processes: int = Field(1_024, ge=16, le=1_000_000)  # per user inside
    disk_mib: int = Field(10_240, ge=32, le=4_194_304)  # what may differ from the base
    output_mib: int = Field(64, ge=1, le=1_024)  # of one command; the rest is cut, and that is said


class MachineSpec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = "debian"  # a reference, as a person writes it
    base_key: str | None = None  # what it stood for when the first machine was booted from it
    limits: Limits = Limits()
    egress: tuple[str, ...] = ()  # host:port, nothing else goes out
    env: dict[str, str] = {}
    user: User = "agent"  # who commands run as
    start: tuple[str, ...] = ()  # services: commands started with the machine, and again after a cold boot
    ports: tuple[int, ...] = ()
    is_read_only: bool = False  # the filesystem, except for the places that live in memory
