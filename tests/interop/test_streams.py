"""Streams: libzmq receives what the programs send, and sends what they receive."""

from __future__ import annotations

import json

import cbor2
import h5py
import hdf5plugin
import numpy as np
import pytest
import zmq

from conftest import DEADLINE, Scan, finish, run, start

DTYPES = {"uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "float32": np.float32}


def bitshuffle_lz4(blob: bytes, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Decodes a bitshuffled frame by the HDF5 filter, of which detectors send the chunks."""
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        options = hdf5plugin.Bitshuffle(nelems=0, cname="lz4")
        data = file.create_dataset("frame", shape, dtype, chunks=shape, **options)
        data.id.write_direct_chunk((0, 0), blob)
        return data[()]


def of_array(parts: list[bytes]) -> np.ndarray | None:
    header = json.loads(parts[0])
    return np.frombuffer(parts[1], DTYPES[header["type"]]).reshape(header["shape"])


def of_dectris_v1(parts: list[bytes]) -> np.ndarray | None:
    if not json.loads(parts[0])["htype"].startswith("dimage-"):
        return None
    about = json.loads(parts[1])
    return bitshuffle_lz4(parts[2], tuple(about["shape"][::-1]), np.dtype(about["type"]))


def of_dectris_v2(parts: list[bytes]) -> np.ndarray | None:
    message = cbor2.loads(parts[0])
    if message["type"] != "image":
        return None
    [image] = message["data"].values()
    (rows, columns), typed = image.value
    algorithm, _, blob = typed.value.value
    assert algorithm == "bslz4"
    return bitshuffle_lz4(blob, (rows, columns), {64: np.uint8, 69: np.uint16, 70: np.uint32}[typed.tag])


def of_concert(parts: list[bytes]) -> np.ndarray | None:
    header = json.loads(parts[0])
    if header.get("end"):
        return None
    return np.frombuffer(parts[1], np.dtype(header["dtype"])).reshape(header["shape"])


DECODERS = {"array-1.0": of_array, "dectris-v1": of_dectris_v1, "dectris-v2": of_dectris_v2, "concert": of_concert}


@pytest.fixture
def pull():
    socket = zmq.Context.instance().socket(zmq.PULL)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, DEADLINE * 1000)
    yield socket
    socket.close()


@pytest.mark.parametrize("protocol", DECODERS)
def test_libzmq_receives_the_simulator(scan: Scan, tmp_path, pull, protocol: str) -> None:
    endpoint = f"ipc://{tmp_path}/detector"
    pull.bind(endpoint)
    simulator = start("beamstream-sim", "replay", scan.path, "--protocol", protocol, "--connect", endpoint)
    frames: list[np.ndarray] = []
    while len(frames) < len(scan.frames):
        frame = DECODERS[protocol](pull.recv_multipart())
        if frame is not None:
            frames.append(frame.copy())
    finish(simulator)
    np.testing.assert_array_equal(frames, scan.frames)


def test_libzmq_sends_to_a_pipeline(scan: Scan, tmp_path) -> None:
    endpoint, output = f"ipc://{tmp_path}/detector", tmp_path / "frames.npy"
    source = f"zmq_source endpoint={endpoint} protocol=array-1.0 max_series=1 end_grace_secs=5 series_timeout_secs=1"
    push = zmq.Context.instance().socket(zmq.PUSH)
    push.bind(endpoint)
    pipeline = start("beamstream", "launch", f"{source} ! npy_sink path={output}")
    for number, frame in enumerate(scan.projections):
        header = {"htype": "array-1.0", "type": frame.dtype.name, "shape": frame.shape, "frame": number}
        push.send_multipart([json.dumps(header).encode(), frame.tobytes()])
    finish(pipeline)
    push.close()
    np.testing.assert_array_equal(np.load(output), scan.projections)


def test_libzmq_receives_a_pipeline(scan: Scan, tmp_path, pull, volume: np.ndarray) -> None:
    endpoint = f"ipc://{tmp_path}/slices"
    pull.bind(endpoint)
    steps = f"scan_source path={scan.path} ! flat_field ! recon rotation_axis=23.5"
    pipeline = start("beamstream", "launch", f"{steps} ! zmq_sink endpoint={endpoint} mode=connect")
    slices = [of_array(pull.recv_multipart()).copy() for _ in range(len(volume))]
    finish(pipeline)
    np.testing.assert_array_equal(slices, volume)


@pytest.mark.parametrize("protocol", DECODERS)
def test_live_is_the_same_as_from_the_file(scan: Scan, tmp_path, volume: np.ndarray, protocol: str) -> None:
    endpoint, output = f"ipc://{tmp_path}/detector", tmp_path / "live.npy"
    source = f"zmq_source endpoint={endpoint} protocol=auto max_series=1 series_timeout_secs=5"
    if protocol == "concert":
        # Its messages tell neither roles nor angles.
        step_deg = scan.angles_deg[scan.image_key == 0][1]
        source += f" series_roles=[dark,flat,projection] angles={{start_deg: 0, step_deg: {step_deg}}}"
    steps = "flat_field ! recon rotation_axis=23.5"
    pipeline = start("beamstream", "launch", f"{source} ! {steps} ! npy_sink path={output}")
    run("beamstream-sim", "replay", scan.path, "--protocol", protocol, "--bind", endpoint)
    finish(pipeline)
    live = np.load(output)
    if protocol.startswith("dectris"):
        np.testing.assert_array_equal(live, volume)
    else:
        # No header tells how many projections come: their weights are corrected at the end, which costs the last bits.
        np.testing.assert_allclose(live, volume, rtol=0, atol=1e-5 * np.abs(volume).max())
