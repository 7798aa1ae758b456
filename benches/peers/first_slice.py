"""Seconds from the start of `beamstream demo` to the first slice that a page gets over its WebSocket.

    python benches/peers/first_slice.py target/release/beamstream      (needs websocket-client from PyPI)
"""

import statistics
import subprocess
import sys
import tempfile
import time

import websocket

PORT = 8099


def once(program: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        demo = subprocess.Popen([program, "demo", "--seconds", "8", "--out", f"{folder}/out", "--view", f"127.0.0.1:{PORT}"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    page = websocket.create_connection(f"ws://127.0.0.1:{PORT}/api/v1/live", origin=f"http://127.0.0.1:{PORT}", timeout=30)
                    break
                except OSError:
                    time.sleep(0.02)
            while isinstance(page.recv(), str):
                pass
            return time.perf_counter() - start
        finally:
            demo.kill()
            demo.wait()


def main() -> None:
    seconds = [once(sys.argv[1]) for _ in range(5)]
    print(f"first slice after {statistics.median(seconds):.2f} s (median of 5; {min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
