#!/usr/bin/env python3
"""Times PyTorch on the work of `tlob bench block`, for ratios side by side.

The TLOB block 32 -> 16 with 4 tokens of 4 (FEATURE axis), forward, and forward and backward (gradients of the weights),
on 256 and 65536 samples: eager, torch.compile, and a CUDA graph of eager, as torch_times.py tells; and graphs on 64, 1024
and 1048576.

    python3 bench/peers/torch_block.py [--compute tf32|fp32] [--repeat COUNT] [--seed NUMBER] \\
        [--cases NAME,...] [--tlob FILE] [--json]

FILE is what `tlob bench block --json' wrote: each time is then held against libtlob's graph.
"""
import json
import sys

import torch_times

D_IN, D_OUT, HEAD = 32, 16, 4


def block(x, w_q, w_k, w_v, w_o):
    n = x.shape[0]
    q, k, v = ((x @ w.t()).view(n, D_OUT // HEAD, HEAD) for w in (w_q, w_k, w_v))
    p = torch.softmax(q @ k.transpose(1, 2) / HEAD**0.5, dim=-1)
    return (p @ v).reshape(n, D_OUT) @ w_o.t()


def read_tlob(path):
    """Medians of libtlob's graphs, by the number of samples."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["results"]
        rows = [row for row in rows if row["what"] == "block" and row["mode"] == "graph"]
        return {row["n"]: {work: row[work]["median_us"] for work in torch_times.WORKS} for row in rows}
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(f"{sys.argv[0]}: {path}: not what `tlob bench block --json' writes: {error!r}")


def cases():
    for n in (64, 256, 1024, 65536, 1048576):
        modes = ("eager", "compile", "graph") if n in (256, 65536) else ("graph",)
        x = torch.randn(n, D_IN, device="cuda")
        weights = [torch.randn(D_OUT, D_IN if i < 3 else D_OUT, device="cuda", requires_grad=True) for i in range(4)]
        yield torch_times.Case("torch_block", n, block, [x, *weights], weights, torch.randn(n, D_OUT, device="cuda"),
                               calls=20 if n <= 4096 else 5, modes=modes)


options = torch_times.parse_arguments(__doc__, lambda parser: parser.add_argument("--tlob", metavar="FILE"))
tlob = read_tlob(options.tlob) if options.tlob else None
torch = torch_times.import_torch()
sys.exit(torch_times.run(torch, options, cases, tlob))
