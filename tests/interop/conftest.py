"""The programs, and a scan that is known pixel by pixel."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

#: Seconds after which a program is taken to hang.
DEADLINE = 120


def _target() -> Path:
    default = Path(__file__).resolve().parents[2] / "target" / "release"
    return Path(os.environ.get("BEAMSTREAM_TARGET", default))


def run(program: str, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end and expects an exit code."""
    command = [str(_target() / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stderr}"
    return done


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts a program."""
    command = [str(_target() / program), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], code: int = 0) -> None:
    """Waits for the end of a program and expects an exit code."""
    _, stderr = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, f"{process.args} ended with {process.returncode}:\n{stderr}"


@dataclass
class Scan:
    """A scan file and what is in it."""

    path: Path
    frames: np.ndarray  #: (frame, row, column), darks and flats first
    image_key: np.ndarray
    angles_deg: np.ndarray

    @property
    def projections(self) -> np.ndarray:
        return self.frames[self.image_key == 0]


@pytest.fixture(scope="session")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Scan:
    path = tmp_path_factory.mktemp("scan") / "scan.nxs"
    run("beamstream-sim", "phantom", "--size", 48, "--angles", 60, "--rows", 4, "--noise", 1e5, "--write", path)
    with h5py.File(path) as file:
        found: dict[str, np.ndarray] = {}

        def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
            # A dataset may be linked to from several places; they are the same.
            if isinstance(item, h5py.Dataset):
                found.setdefault(name.rsplit("/", 1)[-1], item[()])

        file.visititems(visit)
    return Scan(path, found["data"], found["image_key"], found["rotation_angle"])


@pytest.fixture(scope="session")
def volume(scan: Scan, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The scan, reconstructed into a NumPy file."""
    path = tmp_path_factory.mktemp("volume") / "volume.npy"
    run("beamstream", "recon", scan.path, "-o", path, "--rotation-axis", 23.5)
    return np.load(path)
