"""Draws a trace of a run (`--trace FILE`) as a picture: what each node and each stream of a device did when.

    python benches/trace_picture.py TRACE.json[.gz] PICTURE.svg [FIRST_MS [LAST_MS]]

The darker, the larger the part of the time in which a row was at work. Waiting is left out.
"""

import gzip
import json
import sys
from collections import defaultdict

WIDTH, LABEL, ROW, GAP, TOP = 1000, 190, 18, 6, 34
COLORS = {"copy": "#c2410c", "kernel": "#1d4ed8", "host": "#4b5563"}
HOST = 1


def load(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        trace = json.load(file)
    return trace["traceEvents"] if isinstance(trace, dict) else trace


def rows(events):
    """Names, kinds and spans in milliseconds of all rows, in the order in which blocks flow."""
    names, spans = {}, defaultdict(list)
    for event in events:
        row = (event["pid"], event.get("tid"))
        if event["ph"] == "M":
            names[row] = event["args"]["name"]
        elif event["ph"] == "X" and not event["name"].startswith("wait"):
            spans[row].append((event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3, event["name"]))
    for event in events:
        # A node that waits inside of `process` does not work then.
        row = (event["pid"], event.get("tid"))
        if event["ph"] == "X" and event["name"].startswith("wait") and row[0] == HOST:
            spans[row].append((event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3, "-"))
    order = {name: at for at, ((pid, _), name) in enumerate(sorted(names.items())) if pid == HOST}
    for row in sorted(spans, key=lambda row: (order.get(names[row], 99), row[0])):
        is_copy = any(name.startswith("copy") for _, _, name in spans[row])
        kind = "host" if row[0] == HOST else "copy" if is_copy else "kernel"
        where = {"host": "", "copy": " · copies", "kernel": " · kernels"}[kind]
        yield names[row] + where, kind, spans[row]


def parts(spans, first, last):
    """The part of each of WIDTH bins that the spans cover."""
    busy, bin_ms = [0.0] * WIDTH, (last - first) / WIDTH
    for began, ended, name in spans:
        sign = -1 if name == "-" else 1
        began, ended = max(began, first), min(ended, last)
        at = int((began - first) / bin_ms)
        while began < ended and at < WIDTH:
            end = min(ended, first + (at + 1) * bin_ms)
            busy[at] += sign * (end - began) / bin_ms
            began, at = max(end, began), at + 1
    return [min(1.0, max(0.0, part)) for part in busy]


def main(trace, picture, first=None, last=None):
    all_rows = list(rows(load(trace)))
    ends = [span[:2] for _, _, spans in all_rows for span in spans]
    first = float(first) if first else min(began for began, _ in ends)
    last = float(last) if last else max(ended for _, ended in ends)
    height = TOP + len(all_rows) * (ROW + GAP) + 26
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL + WIDTH + 20} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for at, (name, kind, spans) in enumerate(all_rows):
        y = TOP + at * (ROW + GAP)
        out.append(f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
        out.append(f'<rect x="{LABEL}" y="{y}" width="{WIDTH}" height="{ROW}" fill="#f3f4f6"/>')
        levels = [round(8 * part) for part in parts(spans, first, last)] + [0]
        start = 0
        for x in range(1, WIDTH + 1):
            if levels[x] != levels[start] or x == WIDTH:
                if levels[start]:
                    out.append(
                        f'<rect x="{LABEL + start}" y="{y}" width="{x - start}" height="{ROW}" '
                        f'fill="{COLORS[kind]}" opacity="{levels[start] / 8}"/>'
                    )
                start = x
    for tenth in range(11):
        x, ms = LABEL + tenth * WIDTH / 10, tenth * (last - first) / 10
        out.append(f'<text x="{x}" y="{height - 8}" text-anchor="middle" fill="#6b7280">{ms:.0f} ms</text>')
    legend = {"host": "nodes on the host", "kernel": "kernels", "copy": "copies over PCIe"}
    for at, (kind, text) in enumerate(legend.items()):
        out.append(f'<rect x="{LABEL + at * 150}" y="10" width="12" height="12" fill="{COLORS[kind]}"/>')
        out.append(f'<text x="{LABEL + at * 150 + 18}" y="20">{text}</text>')
    with open(picture, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
