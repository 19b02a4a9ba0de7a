"""`outlive` and `python -m outlive`: the command, from its first moment on.

Rule: nothing that takes time is imported before Ctrl-C has a meaning. Until the command itself has come, which takes a
few tenths of a second, it ends the program, and says nothing.
"""

import gc
import os
import signal

_INTERRUPTED = 130  # as shells have it, and `outlive.cli.exit`


def main() -> None:
    # A program that was started with Ctrl-C ignored, in the background of a script say, goes on ignoring it.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)
    gc.disable()  # while modules are loaded: none of what they make is garbage
    from outlive.cli.main import main as run_command

    gc.enable()
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


def _leave(*_: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
