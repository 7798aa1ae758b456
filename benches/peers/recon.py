"""Reconstruction on the CPU beside its peers from PyPI: seconds a slice and accuracy, in one run, taking turns.

    python -m venv v && v/bin/pip install numpy astra-toolbox algotom && v/bin/python benches/peers/recon.py [--quick]

The product is measured by its own benchmark (target/release/recon, built by `cargo build --release -p beamstream-benches`),
with two threads like the peers. Peers that are not installed are skipped. TomoPy is not on PyPI; its figures on a
quiet machine of this kind are in the table at the end, for the ratio to ASTRA to tie the machines together.
"""

import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROUNDS = 5
PROGRAM = Path(__file__).resolve().parents[2] / "target/release/recon"
#: x, y, half axes, turn in degrees, density: the phantom's middle slice.
ELLIPSES = [
    (0.00, 0.00, 0.82, 0.78, 0, 1.00), (0.02, -0.03, 0.74, 0.70, 10, -0.30), (0.28, 0.12, 0.16, 0.31, -18, 0.40),
    (-0.25, 0.10, 0.20, 0.11, 30, -0.35), (0.05, -0.42, 0.11, 0.11, 0, 0.60), (-0.38, -0.30, 0.07, 0.12, 45, 0.80),
    (0.42, -0.32, 0.05, 0.05, 0, -0.50), (-0.10, 0.48, 0.15, 0.05, 75, 0.50), (0.10, 0.45, 0.03, 0.03, 0, 1.00),
    (-0.52, 0.18, 0.02, 0.035, 20, 1.20), (0.55, 0.30, 0.015, 0.015, 0, 1.50), (0.00, 0.05, 0.025, 0.20, -60, -0.25),
]  # fmt: skip


def sinogram(n: int, angles: np.ndarray) -> np.ndarray:
    """Exact line integrals, averaged over each column, f32 (angle, column), attenuation per pixel."""
    edges = (np.arange(n + 1) - n / 2.0)[None] * 2.0 / n
    total = np.zeros((len(angles), n + 1))
    for x, y, a, b, turn, density in ELLIPSES:
        c = np.cos(angles - np.deg2rad(turn))[:, None] ** 2
        half = np.sqrt(a * a * c + b * b * (1 - c))
        q = np.clip((edges - (x * np.cos(angles) + y * np.sin(angles))[:, None]) / half, -1, 1)
        total += density * a * b * (q * np.sqrt(1 - q * q) + np.arcsin(q))
    return ((total[:, 1:] - total[:, :-1]) * n / 2.0).astype(np.float32)


def truth(n: int, samples: int = 5) -> np.ndarray:
    image = np.zeros((n, n))
    base = np.arange(n) - (n - 1) / 2.0
    for i in range(samples):
        y = ((base + (i + 0.5) / samples - 0.5) * 2.0 / n)[:, None]
        for j in range(samples):
            x = ((base + (j + 0.5) / samples - 0.5) * 2.0 / n)[None]
            for x0, y0, a, b, turn, density in ELLIPSES:
                c, s = np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))
                u, v = ((x - x0) * c + (y - y0) * s) / a, ((y - y0) * c - (x - x0) * s) / b
                image += density * (u * u + v * v < 1)
    return image * 2.0 / n / samples**2


def nrmse(image: np.ndarray, reference: np.ndarray) -> float:
    """After the best of the eight flips and a fit of gain and offset, within 0.9 of the inscribed disc."""
    n = len(reference)
    base = np.arange(n) - (n - 1) / 2.0
    inside = base[:, None] ** 2 + base[None] ** 2 < (0.9 * n / 2) ** 2
    best = np.inf
    for flip in range(8):
        turned = np.rot90(image if flip < 4 else image[::-1], flip % 4)
        values, wanted = turned[inside].astype(np.float64), reference[inside]
        gain, offset = np.polyfit(values, wanted, 1)
        best = min(best, float(np.sqrt(np.mean((gain * values + offset - wanted) ** 2)) / np.ptp(wanted)))
    return best


def astra_fbp(sino: np.ndarray, angles: np.ndarray):
    import astra

    n = sino.shape[1]
    volume, projection = astra.create_vol_geom(n, n), astra.create_proj_geom("parallel", 1.0, n, angles)
    projector = astra.create_projector("linear", projection, volume)
    jobs = []
    for _ in range(2):
        config = astra.astra_dict("FBP")
        config["ProjectorId"] = projector
        config["ProjectionDataId"] = astra.data2d.create("-sino", projection, sino)
        config["ReconstructionDataId"] = astra.data2d.create("-vol", volume, 0)
        config["option"] = {"FilterType": "Ram-Lak"}
        jobs.append((astra.algorithm.create(config), config["ReconstructionDataId"]))

    def run() -> np.ndarray:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda job: astra.algorithm.run(job[0]), jobs))
        return astra.data2d.get(jobs[0][1])

    return run, 2


def algotom_fbp(sino: np.ndarray, angles: np.ndarray):
    import algotom.rec.reconstruction as rec

    middle = (sino.shape[1] - 1) / 2.0
    return (lambda: rec.fbp_reconstruction(sino, middle, angles=angles, apply_log=False, gpu=False, ncore=2, ratio=None)), 1


PEERS = {"ASTRA FBP linear": astra_fbp, "algotom fbp": algotom_fbp}


def product(method: str, n: int, count: int) -> tuple[float, float]:
    out = subprocess.run([PROGRAM, method, str(n), str(count), "16", "2"], capture_output=True, text=True, check=True).stdout
    head, _, row = (line.strip("|").split("|") for line in out.strip().splitlines()[:3])
    cells = dict(zip((h.strip() for h in head), (c.strip() for c in row)))
    return float(cells["s/slice"]), float(cells["nRMSE"])


def main() -> None:
    cases = [(1024, 1500)] if "--quick" in sys.argv else [(1024, 1500), (2048, 1800)]
    for n, count in cases:
        angles = np.pi * np.arange(count) / count
        sino, reference = sinogram(n, angles), truth(n)
        peers, errors = {}, {}
        for name, prepare in PEERS.items():
            try:
                peers[name] = prepare(sino, angles)
                errors[name] = nrmse(peers[name][0](), reference)
            except ImportError as error:
                print(f"skipped: {name}: {error}", flush=True)
        times: dict[str, list[float]] = {}
        rounds = ROUNDS if n < 2000 else 3
        for _ in range(rounds):
            for method in ("fourier", "fbp"):
                seconds, errors[f"beamstream {method}"] = product(method, n, count)
                times.setdefault(f"beamstream {method}", []).append(seconds)
            for name, (run, slices) in peers.items():
                start = time.perf_counter()
                run()
                times.setdefault(name, []).append((time.perf_counter() - start) / slices)
        print(f"\nN = {n}, {count} angles, 2 threads; medians of {rounds} rounds")
        for name, seconds in times.items():
            print(f"  {name:20} {statistics.median(seconds):8.4f} s a slice   nRMSE {errors[name]:.4f}", flush=True)
        if "ASTRA FBP linear" in times:
            ratio = statistics.median(times["ASTRA FBP linear"]) / statistics.median(times["beamstream fbp"])
            print(f"  fbp is {ratio:.1f} x ASTRA's")
    print("\nTomoPy gridrec on a quiet machine of this kind: 0.055 s at 1024, 0.216 s at 2048; padded 0.19 and 0.79 s;")
    print("ASTRA FBP linear there: 3.7 and 23 s, nRMSE 0.0041 at 2048.")


if __name__ == "__main__":
    main()
