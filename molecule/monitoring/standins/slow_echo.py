"""STAND-IN for a slow network: answer pings late, from a node whose kernel has been told to leave them alone.

Kernels of test machines lack the queue that delays packets (netem), so the delay sits where the echo is sent back. The
packets are real: who measures the round trip cannot tell the difference.

Usage: slow_echo.py SECONDS
"""

import socket
import struct
import sys
import time

REQUEST, REPLY = 8, 0


def checksum(message: bytes) -> int:
    """Return the Internet checksum of RFC 1071."""
    padded = message + b"\0" * (len(message) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def reply_to(request: bytes) -> bytes:
    """Return the echo of a request: the same identifier, number and content."""
    bare = struct.pack("!BBH", REPLY, 0, 0) + request[4:]
    return bare[:2] + struct.pack("!H", checksum(bare)) + bare[4:]


def main(seconds: float) -> None:
    """Answer until the program is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as line:
        while True:
            packet, sender = line.recvfrom(65535)
            message = packet[(packet[0] & 15) * 4 :]
            if len(message) >= 8 and message[0] == REQUEST:
                time.sleep(seconds)
                line.sendto(reply_to(message), sender)


if __name__ == "__main__":
    main(float(sys.argv[1]))
