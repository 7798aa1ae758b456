"""Bitshuffle/LZ4: our decoder beside DECTRIS' C library, on the same bytes and one core, alternating.

pip install numpy h5py hdf5plugin dectris-compression; then
cargo build --release -p beamstream-benches --bin bslz4 && python benches/peers/bslz4.py
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
from dectris.compression import decompress

OURS = Path(__file__).resolve().parents[2] / "target/release/bslz4"
ROUNDS = 7


def frame(n: int, dtype: str) -> np.ndarray:
    """Counts of a detector: rings on a low background, with noise."""
    y, x = np.mgrid[:n, :n] - n / 2
    mean = 3 + 40 * np.exp(-(((np.hypot(y, x) % (n / 6)) - n / 12) / 8) ** 2)
    return np.random.default_rng(1).poisson(mean).astype(dtype)


def packed(array: np.ndarray) -> bytes:
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        data = file.create_dataset("x", data=array, chunks=array.shape, **hdf5plugin.Bitshuffle(nelems=0, cname="lz4"))
        return bytes(data.id.read_direct_chunk((0, 0))[1])


def peer(blob: bytes, array: np.ndarray) -> float:
    start = time.perf_counter()
    raw = decompress(blob, "bslz4", elem_size=array.itemsize)
    secs = time.perf_counter() - start
    assert raw == array.tobytes()
    return array.nbytes / secs / 1e9


def ours(path: Path, array: np.ndarray) -> float:
    done = subprocess.run([OURS, path, str(array.nbytes), str(array.itemsize), "9"], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    print("| frame | ratio | ours GB/s | dectris-compression GB/s | ours / peer |\n|---|---|---|---|---|")
    for n, dtype in [(2048, "uint16"), (2048, "uint32"), (2048, "uint8"), (512, "uint16")]:
        array = frame(n, dtype)
        blob = packed(array)
        with tempfile.NamedTemporaryFile() as file:
            file.write(blob)
            file.flush()
            pairs = [(ours(Path(file.name), array), peer(blob, array)) for _ in range(ROUNDS)]
        us, them = (statistics.median(values) for values in zip(*pairs))
        print(f"| {n}^2 {dtype} | {array.nbytes / len(blob):.1f} | {us:.2f} | {them:.2f} | {statistics.median(a / b for a, b in pairs):.2f} |")


if __name__ == "__main__":
    main()
