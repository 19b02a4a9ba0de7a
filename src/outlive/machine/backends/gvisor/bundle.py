"""The OCI bundle of a sandbox: pure, a plan in, the content of `config.json` out.

gVisor is the boundary between the machine and the host. What is set here bounds what programs *inside* may do to each
other and to the guest; nothing here is trusted to keep them in.
"""

from typing import Any

from outlive.machine.sandbox import SandboxPlan

# What root inside needs to act as the guest and to install packages. No more: no mounts, no devices, no raw sockets,
# no clock, no modules. PTRACE: the guest looks at the open files of processes of other users before a checkpoint.
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
)
ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
)
OPEN_FILES = (65_536, 1_048_576)  # soft, hard: per process inside
CPU_PERIOD_US = 100_000


def compose_bundle(plan: SandboxPlan, *, root: str, host: str, cgroup: str) -> dict[str, Any]:
    """`root`: the mounted filesystem; `host`: what is at /run/outlive; `cgroup`: absolute, below each controller."""
    return {
        "ociVersion": "1.0.2",
        "process": _process(plan),
        "root": {"path": root, "readonly": plan.is_read_only},
        "hostname": plan.hostname,
        "mounts": _mounts(plan, host),
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "resources": {
                "memory": {"limit": plan.limits.memory_mib << 20},
                "cpu": {"quota": round(plan.limits.cpus * CPU_PERIOD_US), "period": CPU_PERIOD_US},
                "pids": {"limit": plan.limits.threads},
            },
        },
    }


def _process(plan: SandboxPlan) -> dict[str, Any]:
    soft, hard = OPEN_FILES
    return {
        "user": {"uid": 0, "gid": 0},
        "args": list(plan.argv),
        "env": list(ENVIRONMENT),
        "cwd": "/",
        # Who is not root inside does not become root through a file with the setuid bit.
        "noNewPrivileges": True,
        "capabilities": {kind: list(CAPABILITIES) for kind in ("bounding", "effective", "permitted", "inheritable")},
        "rlimits": [
            {"type": "RLIMIT_NOFILE", "soft": soft, "hard": hard},
            {"type": "RLIMIT_NPROC", "soft": plan.limits.processes, "hard": plan.limits.processes},
            {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
        ],
    }


def _mounts(plan: SandboxPlan, host: str) -> list[dict[str, Any]]:
    """What is in memory counts against the memory of the machine: all of it filled leaves a quarter for programs."""
    memory = plan.limits.memory_mib
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        # gVisor does not enforce RLIMIT_NPROC. Its own `pids` controller it does enforce: the guest sets it (from
        # `Limits.processes`) for what it runs, so that a fork bomb gets EAGAIN instead of taking the machine along.
        {
            "destination": "/sys/fs/cgroup",
            "type": "cgroup",
            "source": "cgroup",
            "options": ["nosuid", "noexec", "nodev"],
        },
        _in_memory("/tmp", "1777", memory // 2),  # noqa: S108 (of the machine, not of the host)
        _in_memory("/var/tmp", "1777", memory // 16),  # noqa: S108
        _in_memory("/run", "755", memory // 16),
        _in_memory("/dev/shm", "1777", memory // 8),  # noqa: S108
        {"destination": "/.outlive", "type": "bind", "source": str(plan.runtime), "options": ["rbind", "ro"]},
        # Read-only, and a socket in it can be dialled all the same: a machine can leave nothing on the host.
        {"destination": "/run/outlive", "type": "bind", "source": host, "options": ["bind", "ro"]},
    ]


def _in_memory(place: str, mode: str, size_mib: int) -> dict[str, Any]:
    options = ["nosuid", "nodev", f"mode={mode}", f"size={size_mib}m"]
    return {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": options}
