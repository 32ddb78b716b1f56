"""A ProxyCommand: carries its standard streams to HOST PORT."""

import os
import socket
import sys
import threading

stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))


def send() -> None:
    while data := os.read(0, 65536):
        stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)


threading.Thread(target=send, daemon=True).start()
while data := stream.recv(65536):
    os.write(1, data)
