"""The bound on processes in this machine. Set on the guest, inherited by all that it starts.

gVisor knows RLIMIT_NPROC and does not enforce it; its own `pids` controller it does enforce. So the number that the
machine was started with is put there, and a fork bomb gets EAGAIN instead of taking the machine along. The guest itself
forks for nothing but what it is asked for: full, it still answers, signals and ends.
"""

import os
import resource

from outlive.guest.complaints import complain

_CONTROLLER = "/sys/fs/cgroup/pids"
_GROUP = f"{_CONTROLLER}/outlive"


def limit_processes() -> None:
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most == resource.RLIM_INFINITY:
        return
    try:
        os.makedirs(_GROUP, exist_ok=True)
        for name, value in (("pids.max", most), ("cgroup.procs", os.getpid())):
            with open(f"{_GROUP}/{name}", "w") as file:
                file.write(f"{value}\n")
    except OSError as error:
        complain(f"the number of processes is not bounded: {error}")
