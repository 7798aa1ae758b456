"""Resident memory of a live run behind a slow sink, against the plan's figure, for a scan and one ten times longer.

A libzmq PUSH offers 2048 x 2048 u16 frames (8 MiB) as fast as the socket takes them; the pipeline is
zmq_source -> throttle (10 frames a second) -> null_sink, and with --recon a whole live reconstruction.

    python benches/peers/memory.py target/release/beamstream
"""

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import zmq

MIB = 1 << 20
ROWS = COLUMNS = 2048


def header(images: int) -> list[bytes]:
    config = {"nimages": images, "ntrigger": 1, "bit_depth_image": 16, "omega_start": 0.0, "omega_increment": 180 / images,
              "x_pixels_in_detector": COLUMNS, "y_pixels_in_detector": ROWS}
    return [json.dumps({"htype": "dheader-1.0", "series": 1, "header_detail": "basic"}).encode(), json.dumps(config).encode()]


def image(number: int, pixels: bytes) -> list[bytes]:
    return [
        json.dumps({"htype": "dimage-1.0", "series": 1, "frame": number, "hash": "0" * 32}).encode(),
        json.dumps({"htype": "dimage_d-1.0", "shape": [COLUMNS, ROWS], "type": "uint16", "encoding": "<", "size": len(pixels)}).encode(),
        pixels,
        b'{"htype":"dconfig-1.0","start_time":0,"stop_time":1,"real_time":1}',
    ]


def send(socket: zmq.Socket, images: int, pixels: bytes) -> None:
    socket.send_multipart(header(images))
    for number in range(images):
        socket.send_multipart(image(number, pixels))
    socket.send_multipart([b'{"htype":"dseries_end-1.0","series":1}'])


def run(program: str, images: int, steps: str) -> tuple[float, float]:
    """Peak resident and planned MiB of one run."""
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, 1)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    pixels = np.random.default_rng(0).poisson(40, (ROWS, COLUMNS)).astype(np.uint16).tobytes()
    with tempfile.TemporaryDirectory() as folder:
        line = f"zmq_source endpoint=tcp://127.0.0.1:{port} role=projection max_series=1 ! {steps}"
        report, about = Path(folder) / "report.json", Path(folder) / "header.json"
        about.write_text(json.dumps({"rows": ROWS, "columns": COLUMNS, "projections": images}))
        pipeline = Path(folder) / "pipeline.yaml"
        kinds = [step.strip().split(" ", 1) for step in line.split("!")]
        nodes = []
        for index, kind in enumerate(kinds):
            parameters = dict(pair.split("=", 1) for pair in (kind[1].split() if len(kind) > 1 else []))
            source = {} if index == 0 else {"input": f"n{index - 1}"}
            nodes.append(f"  n{index}: {json.dumps({'kind': kind[0], **source, **{k: yaml_value(v) for k, v in parameters.items()}})}")
        pipeline.write_text("version: 1\nnodes:\n" + "\n".join(nodes) + "\n")
        explained = subprocess.run([program, "explain", pipeline, "--header", about, "--json"], capture_output=True, text=True, check=True)
        planned = json.loads(explained.stdout)["memory"]["host_bytes"]
        sender = threading.Thread(target=send, args=(socket, images, pixels), daemon=True)
        sender.start()
        subprocess.run([program, "run", pipeline, "--report", report, "-q"], check=True)
        peak = json.loads(report.read_text())["memory"]["peak_rss_bytes"]
    sender.join()
    socket.close(0)
    context.term()
    return peak / MIB, planned / MIB


def yaml_value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    program = sys.argv[1]
    print(f"{'pipeline':44} {'frames':>6} {'planned':>9} {'peak RSS':>9} {'over':>8}")
    for steps, counts in [("throttle max_blocks_per_sec=10 ! null_sink", (64, 640)),
                          ("flat_field ! recon rows=1000:1016 rotation_axis=1023.5 ! null_sink", (64, 640))]:
        for images in counts:
            peak, planned = run(program, images, steps)
            print(f"{steps[:44]:44} {images:6} {planned:5.0f} MiB {peak:5.0f} MiB {peak - planned:+4.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
