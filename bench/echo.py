"""The barest hop between two processes: a unix socket, and a process that sends back what it gets."""

import socket
import sys


def main() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(sys.argv[1])
        while data := client.recv(65536):
            client.sendall(data)


if __name__ == "__main__":
    main()
