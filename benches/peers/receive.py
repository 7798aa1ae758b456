"""Receiving frames: a plain TCP socket, our ZMTP receiver, and libzmq with a copy into a buffer, alternating.

The sender is the same for all, a plain socket that sends from one buffer, so that only receivers differ.
pip install pyzmq; then
cargo build --release -p beamstream-benches --bin receive && python benches/peers/receive.py
"""

from __future__ import annotations

import resource
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import zmq

OURS = Path(__file__).resolve().parents[2] / "target/release/receive"
ROUNDS = 7


def handshake(peer: socket.socket) -> None:
    """The sender's side of a ZMTP 3.0 handshake as PUSH, mechanism NULL."""
    peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48) + b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PUSH")
    peer.settimeout(10)
    received = b""
    while b"Socket-Type" not in received:
        received += peer.recv(4096)
    peer.settimeout(None)


def send(listener: socket.socket, frame: bytes, count: int, kind: str) -> None:
    """Sends from one buffer, with the framing of ZMTP and a small part before each frame, or as it is."""
    peer, _ = listener.accept()
    if kind != "raw":
        handshake(peer)
        frame = b"\x01\x64" + b"x" * 100 + b"\x02" + struct.pack(">Q", len(frame)) + frame
    for _ in range(count):
        peer.sendall(frame)
    peer.shutdown(socket.SHUT_WR)
    peer.recv(1)
    peer.close()


def receive_zmq(port: int, size: int, count: int) -> None:
    """The libzmq receiver, run in a process of its own: prints seconds and processor seconds."""
    pull = zmq.Context().socket(zmq.PULL)
    pull.setsockopt(zmq.RCVHWM, 8)
    pull.connect(f"tcp://127.0.0.1:{port}")
    buffer = bytearray(size)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = 0.0
    for i in range(count):
        pull.recv(copy=False)
        frame = pull.recv(copy=False)
        memoryview(buffer)[:] = frame.buffer
        start = start or time.perf_counter()
    secs = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(secs, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def run(kind: str, size: int, count: int) -> tuple[float, float]:
    """GB/s and processor seconds per GB of one receiver."""
    frame = bytes(size)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    sending = threading.Thread(target=send, args=(listener, frame, count, kind))
    sending.start()
    command = [sys.executable, __file__, str(port), str(size), str(count)] if kind == "libzmq" else [OURS, kind, f"127.0.0.1:{port}", str(size), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sys.stderr.write(done.stderr)
    sending.join()
    listener.close()
    secs, cpu = map(float, done.stdout.split())
    gigabytes = size * count / 1e9
    return gigabytes / secs, cpu / gigabytes


def main() -> None:
    print("| frame | receiver | GB/s | / raw | cpu s/GB |\n|---|---|---|---|---|")
    for size, count in [(8 << 20, 300), (64 << 10, 40_000)]:
        rounds = [{kind: run(kind, size, count) for kind in ("raw", "zmtp", "libzmq")} for _ in range(ROUNDS)]
        for kind in rounds[0]:
            rate, cpu = (statistics.median(r[kind][i] for r in rounds) for i in (0, 1))
            ratio = statistics.median(r[kind][0] / r["raw"][0] for r in rounds)
            print(f"| {size >> 10} KiB | {kind} | {rate:.2f} | {ratio:.2f} | {cpu:.3f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        receive_zmq(*map(int, sys.argv[1:]))
    else:
        main()
