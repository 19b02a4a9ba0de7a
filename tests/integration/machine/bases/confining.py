"""A process that runs a program confined, to be killed: `confining.py FOLDER`."""

import sys

from outlive.machine.backends.bases.confined import run_confined

PROGRAM = "mount -t tmpfs tmpfs $0 && touch $0/here && (sleep 1000 &) && ls $0 && sleep 1000"

if __name__ == "__main__":
    run_confined(["/bin/sh", "-c", PROGRAM, sys.argv[1]], {}, lambda line: print(line, flush=True), within_s=600.0)
