"""`python -m outlive.guest [--socket=P] [--egress=P] [--relay-port=N] [--workspace=P]`: be the guest, for ever."""

import os
import signal
import sys

from outlive.guest.daemon import Daemon
from outlive.guest.limits import limit_processes

_DEFAULTS = {
    "--socket": "/run/outlive/ctl.sock",
    "--egress": "/run/outlive/egress.sock",
    "--relay-port": "3128",  # 0: none
    "--workspace": "/workspace",
}


def main() -> None:
    # Taken apart by hand: argparse takes longer to import than a start has time for.
    options = _DEFAULTS | {name: value for name, _, value in (word.partition("=") for word in sys.argv[1:])}
    if unknown := options.keys() - _DEFAULTS.keys():
        raise SystemExit(f"unknown options: {sorted(unknown)}")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    is_init = os.getpid() == 1
    if is_init:
        os.umask(0o022)
        # Not ignored: what is ignored stays ignored in every program that is started.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        limit_processes()
    Daemon(
        options["--socket"],
        egress=options["--egress"],
        relay_port=int(options["--relay-port"]),
        workspace=options["--workspace"],
        owns_machine=is_init,
    ).run()


if __name__ == "__main__":
    main()
