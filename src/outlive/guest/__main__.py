"""`python -m outlive.guest`: be the guest of this machine, for ever."""

import argparse
import os
import signal

from outlive.guest.daemon import Daemon
from outlive.guest.spawn import limit_resources


def main() -> None:
    parser = argparse.ArgumentParser(prog="outlive.guest")
    parser.add_argument("--socket", default="/run/outlive/ctl.sock")
    parser.add_argument("--egress", default="/run/outlive/egress.sock")
    parser.add_argument("--relay-port", type=int, default=3128, help="0: no relay")
    parser.add_argument("--workspace", default="/workspace")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    is_init = os.getpid() == 1
    if is_init:
        os.umask(0o022)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        limit_resources()
    Daemon(
        options.socket,
        egress=options.egress,
        relay_port=options.relay_port,
        workspace=options.workspace,
        owns_machine=is_init,
    ).run()


main()
