"""STAND-IN: exporters of a simulated fleet, for a real Prometheus to scrape. No GPU is involved.

Every node answers at ``/NODE/gpu`` as dcgm-exporter does and at ``/NODE/node`` as node_exporter with verify's textfile.
Faults are written into ``FAULTS``, and heal when they are taken out.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

__all__ = ["Fleet", "serve"]

GPUS = 8


@dataclass
class Fleet:
    """``nodes`` machines of eight GPUs, some with faults.

    ``faults`` maps a node to ``hot``, ``xid``, ``idle``, ``free``, ``held``, ``lost`` or ``down``. Who is ``idle``
    still holds memory; who is ``free`` or ``held`` does not, and ``held`` may not be released. ``labels`` are put on
    every series of a GPU, as the exporter does with the Pod that has it.
    """

    nodes: int = 26
    faults: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [f"gpu{number:03d}" for number in range(1, self.nodes + 1)]

    def gpu_metrics(self, node: str) -> str:
        fault = self.faults.get(node)
        rows: list[str] = []
        visible = GPUS - 1 if fault == "lost" else GPUS
        for index in range(visible):
            seed = hash_of(f"{node}{index}")
            wave = math.sin((time.time() - self.started) / 40 + seed)
            busy = 0.02 if fault in ("idle", "free", "held") else 0.86 + 0.1 * wave
            heat = 91 if fault == "hot" and index == 0 else 58 + 14 * busy + 2 * wave
            labels = (
                f'gpu="{index}",UUID="GPU-{node}-{index}",modelName="NVIDIA H100 80GB HBM3",hostname="{node}"'
                ',DCGM_FI_DRIVER_VERSION="580.95.05"'
            ) + "".join(f',{key}="{value}"' for key, value in self.labels.items())
            values = {
                "DCGM_FI_DEV_GPU_TEMP": heat,
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE": busy,
                "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5 * busy,
                "DCGM_FI_PROF_DRAM_ACTIVE": 0.6 * busy,
                "DCGM_FI_DEV_POWER_USAGE": 110 + 560 * busy,
                "DCGM_FI_DEV_FB_USED": 400 if fault in ("free", "held") else 61000 + 300 * wave,
                "DCGM_FI_DEV_SM_CLOCK": 1830 + 40 * wave,
                "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
                "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0,
                "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
                "DCGM_FI_PROF_PCIE_TX_BYTES": 2e9 * busy,
                "DCGM_FI_PROF_PCIE_RX_BYTES": 3e9 * busy,
            }
            rows += [f"{name}{{{labels}}} {value:.6g}" for name, value in values.items()]
            if fault == "xid" and index == 3:
                rows.append(f'DCGM_EXP_XID_ERRORS_COUNT{{{labels},xid="79"}} 1')
        return "\n".join(rows) + "\n"

    def node_metrics(self, node: str) -> str:
        fault = self.faults.get(node)
        rows = [
            f'provision_gpu_expected{{target="local"}} {GPUS}',
            'provision_gpu_expected_driver_info{target="local",version="580.95.05"} 1',
            f'provision_verify_timestamp_seconds{{target="local"}} {time.time():.0f}',
            f'node_textfile_mtime_seconds{{file="/var/lib/prometheus/node-exporter/provision.prom"}} {time.time():.0f}',
            'provision_verify_status{target="local",check="gpu.count",severity="critical"} '
            + ("0" if fault == "lost" else "1"),
        ]
        if fault == "xid":
            rows.append(
                'provision_xid_events_total{target="local",pci="0000:9b:00",xid="79",severity="fatal"} 1',
            )
        if fault == "held":
            rows.append("provision_node_hold 1")
        return "\n".join(rows) + "\n"


def hash_of(text: str) -> float:
    """Return a number that is the same in every process."""
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(text)) % 628 / 100


@contextmanager
def serve(fleet: Fleet) -> Iterator[int]:
    """Serve on a port of this machine; yield it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, node, kind = [*urlsplit(self.path).path.split("/"), "", ""][:3]
            if node not in fleet.names or fleet.faults.get(node) == "down":
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.send_error(503)
                return
            body = (fleet.gpu_metrics(node) if kind == "gpu" else fleet.node_metrics(node)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # Prometheus may be told to stop in the middle of a scrape.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            del words

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
