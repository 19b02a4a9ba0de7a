"""Programs of others that start processes and mount things: run so that nothing of them can stay behind.

The program has namespaces of its own for processes and mounts, and is killed when we die. Whoever is killed, it or
we, the kernel ends all that it started and unmounts all that it mounted.
"""

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

_CONFINED = (
    *("/usr/bin/setpriv", "--pdeathsig=KILL"),
    *("/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"),
)
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run_confined(
    argv: Sequence[str], environment: Mapping[str, str], hear: Callable[[str], None], *, within_s: float
) -> int | None:
    """Run a program to its end and pass on each line it says. Its exit code; None if it took too long."""
    is_late = threading.Event()
    with subprocess.Popen(  # noqa: S603
        [*_CONFINED, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={"PATH": _PATH, **environment},
        start_new_session=True,  # Ctrl-C is ours to hear
    ) as process:

        def end() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(within_s, end)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                hear(line.rstrip())
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return None if is_late.is_set() else code
