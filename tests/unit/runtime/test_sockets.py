"""Who has a port."""

import os
import socket
from pathlib import Path

import pytest

from kdns.runtime.connections import bind_failure
from kdns.runtime.sockets import bound_sockets, port_holder, socket_inodes


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_it_is_named_with_its_process(kind: socket.SocketKind, family: socket.AddressFamily, address: str) -> None:
    own = f"{Path('/proc/self/comm').read_text().strip()} (process {os.getpid()})"
    with socket.socket(family, kind) as held, socket.socket(family, kind) as late:
        held.bind((address, 0))
        port = held.getsockname()[1]
        if kind == socket.SOCK_STREAM:
            held.listen()
        assert port_holder(port) == own
        with pytest.raises(OSError, match="in use") as raised:
            late.bind((address, port))
        reason = f"Address already in use by {own}; take another port, or 0 for any that is free"
        assert bind_failure(raised.value, port) == reason
    assert port_holder(port) == ""


def test_connections_wait_for_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        own = set(socket_inodes())
        ports = {bound_socket.port for bound_socket in bound_sockets("tcp") if bound_socket.inode in own}
        assert server.getsockname()[1] in ports
        assert client.getsockname()[1] not in ports
