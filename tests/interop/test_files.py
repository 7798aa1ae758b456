"""Files: the libraries of the formats read what is written, and what they write is read."""

from __future__ import annotations

import h5py
import hdf5plugin
import numpy as np
import pytest
import tifffile
import zarr

from conftest import Scan, run


def read_hdf5(path) -> np.ndarray:
    with h5py.File(path) as file:
        volumes: list[np.ndarray] = []
        file.visititems(lambda _, item: volumes.append(item[()]) if getattr(item, "ndim", 0) == 3 else None)
    return max(volumes, key=lambda volume: volume.size)


def read_zarr(path) -> np.ndarray:
    root = zarr.open(path, mode="r")
    arrays = [root] if isinstance(root, zarr.Array) else [array for _, array in root.arrays()]
    return max((array[:] for array in arrays), key=lambda array: array.size)


def read_folder(path) -> np.ndarray:
    return np.stack([tifffile.imread(file) for file in sorted(path.glob("*.tif"))])


def read_raw(path) -> np.ndarray:
    return np.fromfile(path, "<f4").reshape(4, 48, 48)


READERS = {
    "v.h5": read_hdf5,
    "v.zarr": read_zarr,
    "v.tif": tifffile.imread,
    "v.npy": np.load,
    "v.raw": read_raw,
    "slices": read_folder,
}


@pytest.mark.parametrize("name", READERS)
def test_every_output_holds_the_same_volume(scan: Scan, volume: np.ndarray, tmp_path, name: str) -> None:
    run("beamstream", "recon", scan.path, "-o", tmp_path / name, "--rotation-axis", 23.5)
    found = READERS[name](tmp_path / name)
    assert found.dtype == np.float32 and found.shape == (4, 48, 48)
    np.testing.assert_array_equal(found, volume)


@pytest.mark.parametrize("dtype, high", [("u8", 255), ("u16", 65535)])
def test_integers_follow_the_range(scan: Scan, volume: np.ndarray, tmp_path, dtype: str, high: int) -> None:
    path = tmp_path / "v.npy"
    run("beamstream", "recon", scan.path, "-o", path, "--rotation-axis", 23.5, "--dtype", dtype, "--range", "0:0.05")
    exact = np.clip(volume.astype(np.float64) / 0.05, 0, 1) * high
    # Numbers half-way between two integers may go either way.
    assert np.abs(np.load(path) - exact).max() <= 0.51


FILTERS = {
    "contiguous": {},
    "gzip and shuffle": {"chunks": (1, 4, 48), "compression": "gzip", "shuffle": True},
    "several frames a chunk": {"chunks": (7, 3, 20), "compression": "gzip"},
    "bitshuffle": {"chunks": (1, 4, 48), **hdf5plugin.Bitshuffle(nelems=0, cname="lz4")},
    "lz4": {"chunks": (1, 4, 48), **hdf5plugin.LZ4()},
}


@pytest.mark.parametrize("layout", FILTERS)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_scans_of_h5py_are_read(scan: Scan, volume: np.ndarray, tmp_path, layout: str, libver: str) -> None:
    with h5py.File(tmp_path / "scan.h5", "w", libver=libver) as file:
        exchange = file.create_group("exchange")
        for name, key in [("data", 0), ("data_white", 1), ("data_dark", 2)]:
            frames = scan.frames[scan.image_key == key]
            options = dict(FILTERS[layout])
            if "chunks" in options:
                options["chunks"] = tuple(np.minimum(options["chunks"], frames.shape))
            exchange.create_dataset(name, data=frames, **options)
        exchange["theta"] = scan.angles_deg[scan.image_key == 0]
    run("beamstream", "recon", tmp_path / "scan.h5", "-o", tmp_path / "v.npy", "--rotation-axis", 23.5)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), volume)


@pytest.mark.parametrize(
    "options",
    [{}, {"bigtiff": True}, {"byteorder": ">"}, {"compression": "zlib"}],
    ids=["plain", "BigTIFF", "big-endian", "deflate"],
)
def test_scans_of_tifffile_are_read(scan: Scan, volume: np.ndarray, tmp_path, options: dict) -> None:
    for name, key in [("projections", 0), ("flats", 1), ("darks", 2)]:
        tifffile.imwrite(tmp_path / f"{name}.tif", scan.frames[scan.image_key == key], photometric="minisblack", **options)
    np.savetxt(tmp_path / "angles.txt", scan.angles_deg[scan.image_key == 0])
    places = [f"--{name}={tmp_path / name}.tif" for name in ("flats", "darks")] + [f"--angles={tmp_path / 'angles.txt'}"]
    output = ["-o", tmp_path / "v.npy", "--rotation-axis", 23.5]
    run("beamstream", "recon", tmp_path / "projections.tif", *output, *places)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), volume)
