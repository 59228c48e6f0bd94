"""What the comparisons with PyTorch share: options, modes, timing, and the table, which is that of `tlob bench`.

Each case is timed as eager, under torch.compile, and as a CUDA graph of eager. Microseconds a call: the median and, in
brackets, the quartiles, of events around several calls. What compiles or captures is run before it is timed. A mode
that fails is a cell that says why, and the exit status is then 1.
"""
import argparse
import dataclasses
import json
import sys

WORKS = ("forward", "forward_and_backward")


def parse_arguments(doc, add=None, cases=True):
    """Those of all comparisons, and what add(parser) adds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", choices=["tf32", "fp32"], default="tf32")
    parser.add_argument("--repeat", type=int, default=101)
    parser.add_argument("--seed", type=int, default=1)
    if cases:
        parser.add_argument("--cases", help="names of the cases to time, separated by commas; all where not given")
    parser.add_argument("--json", action="store_true")
    if add:
        add(parser)
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat: {options.repeat} is not at least 1")
    return options


def import_torch():
    """PyTorch, or the end of the program with one line where it or its GPU is not here."""
    try:
        import torch
    except ImportError:
        sys.exit(f"{sys.argv[0]}: PyTorch is not installed here")
    if not torch.cuda.is_available():
        sys.exit(f"{sys.argv[0]}: PyTorch finds no GPU here")
    return torch


@dataclasses.dataclass
class Case:
    """A function, and what it is timed on: its gradients are those of `wanted` for the gradient `dy` of its value."""

    name: str
    n: int
    function: object
    inputs: list
    wanted: list
    dy: object
    calls: int = 20
    modes: tuple = ("eager", "compile", "graph")


def works_of(torch, case, function):
    """The two calls that are timed."""

    def forward():
        with torch.no_grad():
            return function(*case.inputs)

    def both():
        return torch.autograd.grad(function(*case.inputs), case.wanted, case.dy)

    return dict(zip(WORKS, (forward, both)))


def as_graph(torch, call):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def make_call(torch, case, mode, work):
    if mode == "compile":
        torch.compiler.reset()  # else shapes that earlier cases had make this one's dynamic
        return works_of(torch, case, torch.compile(case.function))[work]
    call = works_of(torch, case, case.function)[work]
    return as_graph(torch, call) if mode == "graph" else call


def measure(torch, call, calls, repeat):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for r in range(-5, repeat):
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        if r >= 0:
            samples.append(1e3 * begin.elapsed_time(end) / calls)
    samples.sort()
    return samples[repeat // 2], samples[repeat // 4], samples[repeat - 1 - repeat // 4]


def time_case(torch, case, mode, options):
    row = {"what": case.name, "n": case.n, "mode": mode}
    for work in WORKS:
        try:
            row[work] = measure(torch, make_call(torch, case, mode, work), case.calls, options.repeat)
        except Exception as error:  # whatever a mode does, the others are still timed
            lines = str(error).splitlines()
            row[work] = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return row


def report(row):
    cells = ["%10.2f [%.2f %.2f]" % row[work] if isinstance(row[work], tuple) else row[work] for work in WORKS]
    cells += ["%6.2f" % row["over_" + work] for work in WORKS if "over_" + work in row]
    print("%-12s %7d  %-7s  %s" % (row["what"], row["n"], row["mode"], "  ".join(cells)), flush=True)


def hold_against(row, tlob):
    """Adds the ratios to libtlob's graphs: tlob[n][work] are their medians."""
    for work in WORKS:
        if isinstance(row[work], tuple) and row["n"] in tlob:
            row["over_" + work] = row[work][0] / tlob[row["n"]][work]


def begin(torch, options):
    """Seeds, sets the compute mode, prints what the times depend on unless as JSON, and returns it."""
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = options.compute == "tf32"
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(),
                "compute": options.compute, "seed": options.seed}
    if not options.json:
        print(", ".join("%s %s" % item for item in versions.items()))
    return versions


def run(torch, options, make_cases, tlob=None):
    """Times what make_cases() yields, prints, and returns the exit status. tlob: as of hold_against."""
    versions = begin(torch, options)
    if not options.json:
        print("%-12s %7s  %-7s  forward, then forward and backward: median [quartiles] in us%s" % (
            "what", "N", "mode", "  ratios to libtlob's graphs" if tlob else ""))
    rows = []
    wanted = options.cases.split(",") if options.cases else None
    for case in make_cases():
        if wanted and case.name not in wanted:
            continue
        for mode in case.modes:
            rows.append(time_case(torch, case, mode, options))
            hold_against(rows[-1], tlob or {})
            if not options.json:
                report(rows[-1])
    if options.json:
        print(json.dumps({**versions, "results": rows}, indent=1))
    missing = set(wanted or ()) - {row["what"] for row in rows}
    if missing:
        print(f"{sys.argv[0]}: there is no case {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    failed = [row for row in rows if any(isinstance(row[work], str) for work in WORKS)]
    return 1 if failed else 0
