"""Makes the small HDF5 files of these tests with h5py: what our own writer does not write.

Run it in this folder. Frame f of every file has the pixels 100 f + 10 row + column.
"""

from pathlib import Path

import h5py
import numpy as np


def frames(first: int, count: int) -> np.ndarray:
    f, y, x = np.mgrid[first : first + count, 0:3, 0:4]
    return (100 * f + 10 * y + x).astype("<u2")


def virtual() -> None:
    """Two files whose frames alternate, a file of the lower rows, and one mapping within the file itself."""
    for number in range(2):
        with h5py.File(f"virtual_part_{number}.h5", "w") as file:
            file["entry/data"] = frames(0, 6)[number::2]
    with h5py.File("virtual.h5", "w", libver=("v110", "v110")) as file:
        both = h5py.VirtualLayout((6, 3, 4), "<u2")
        for number in range(2):
            both[number::2] = h5py.VirtualSource(f"virtual_part_{number}.h5", "entry/data", (3, 3, 4))
        file.create_virtual_dataset("alternating", both)
        file["whole"] = frames(0, 6)
        tiled = h5py.VirtualLayout((7, 3, 4), "<u2")
        source = h5py.VirtualSource(file["whole"])
        tiled[0:6, 0:2, 0:4] = source[0:6, 0:2, 0:4]
        tiled[0:6, 2:3, 0:1] = source[0:6, 2:3, 0:1]
        tiled[0:6, 2:3, 1:4] = source[0:6, 2:3, 1:4]
        file.create_virtual_dataset("tiled", tiled, fillvalue=9)
        nested = h5py.VirtualLayout((2, 3, 4), "<u2")
        nested[0:2] = h5py.VirtualSource(".", "alternating", (6, 3, 4))[2:4]
        file.create_virtual_dataset("nested", nested)
        missing = h5py.VirtualLayout((1, 3, 4), "<u2")
        missing[0] = h5py.VirtualSource("not_there.h5", "data", (1, 3, 4))[0]
        file.create_virtual_dataset("missing", missing)


def dectris() -> None:
    """A master file of three data files, the last of which was never written."""
    with h5py.File("dectris_master.h5", "w") as file:
        for number in range(1, 4):
            name = f"dectris_data_{number:06}.h5"
            file[f"entry/data/data_{number:06}"] = h5py.ExternalLink(name, "/entry/data/data")
            if number < 3:
                with h5py.File(name, "w") as part:
                    part.create_dataset("entry/data/data", data=frames(2 * number - 2, 2), chunks=(1, 3, 4))
        omega = file.create_dataset("entry/sample/goniometer/omega", data=np.arange(6) * 0.5 - 1.0)
        omega.attrs["units"] = "degree"
        size = file.create_dataset("entry/instrument/detector/x_pixel_size", data=75e-6)
        size.attrs["units"] = "m"


def bliss() -> None:
    """Darks, flats, two rounds of projections and the images of the alignment."""
    with h5py.File("bliss.h5", "w") as file:
        rounds = [("tomo:fullturn", None, 0), ("dark images", None, 0), ("reference images 0", None, 1)]
        rounds += [("projections 1", [0.0, 45.0], 2), ("projections 2", [90.0, 135.0], 4), ("static images", None, 6)]
        for number, (title, angles, first) in enumerate(rounds, 1):
            scan = file.create_group(f"{number}.1")
            scan["title"] = title
            if number == 1:
                scan["technique/scan/tomo_n"] = 4
                continue
            scan["instrument/pcolinux/data"] = frames(first, 2 if angles else 1)
            scan["measurement/pcolinux"] = h5py.SoftLink(f"/{number}.1/instrument/pcolinux/data")
            scan["measurement/elapsed_time"] = np.arange(2.0)
            if angles:
                motor = scan.create_dataset("measurement/hrsrot", data=angles)
                motor.attrs["units"] = "deg"
                pixel = scan.create_dataset("technique/optic/sample_pixel_size", data=3.2)
                pixel.attrs["units"] = "um"


def esrf_nxtomo() -> None:
    """Alignment images that only the control key marks, and angles without a unit."""
    with h5py.File("esrf_control.nx", "w") as file:
        detector = file.create_group("entry0000/instrument/detector")
        file["entry0000/definition"] = "NXtomo"
        detector["data"] = frames(0, 6)
        detector["image_key"] = [2, 1, 0, 0, 0, 0]
        detector["image_key_control"] = [2, 1, 0, 0, 0, -1]
        file["entry0000/sample/rotation_angle"] = [0, 0, 0, np.pi / 3, 2 * np.pi / 3, 0]


if __name__ == "__main__":
    assert Path("make.py").exists(), "run this in its own folder"
    for make in (virtual, dectris, bliss, esrf_nxtomo):
        make()
