"""Time the attention backends, forward and backward, over sequence lengths.

    python benchmarks/attention.py [--lengths 128 512 2048] [--tokens 4096] [--json FILE]

One layer's attention in bf16 with the bias of TUPE (shared by the batch, with a gradient), as many
tokens at every length, and `sdpa` without a bias as the mark to come near. Every backend is first
compared with an fp64 reference: the largest relative error of output and gradients is printed. A
backend that does not work here is listed with its reason.
"""

from functools import partial
from typing import Any

from side_by_side import (
    add_clock,
    alternate,
    attempted,
    fail_after_errors,
    milliseconds,
    parser,
    print_rows,
    ready,
    spread,
    where_it_fits,
    write_json,
)

from data_prep.files.program import run_program

HEAD_WIDTH = 64
PLAIN = "sdpa, no bias"


def main() -> None:
    """Time all backends at all lengths and print a table of each."""
    options = parser(__doc__, steps=11)
    add_clock(options)
    options.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048])
    options.add_argument("--tokens", type=int, help="in a batch; default: 4096, on a GPU 32768")
    options.add_argument("--heads", type=int, help="default: 8, on a GPU 12")
    arguments = options.parse_args()
    import torch

    from pretrain.distributed.freed_memory import keep_freed_memory

    cuda = torch.cuda.is_available()
    if not cuda:
        keep_freed_memory()  # as a run
    device, tokens = ("cuda", 32_768) if cuda else ("cpu", 4096)
    tokens, heads = arguments.tokens or tokens, arguments.heads or (12 if cuda else 8)
    results: list[dict[str, Any]] = []
    for length in arguments.lengths:
        chosen = (1, heads * HEAD_WIDTH, length, max(1, tokens // length))
        found = where_it_fits(
            chosen, lambda size: measure(size[2], size[3], heads, device, arguments)
        )
        results.append(found)
        write_json(arguments.json, results)
    fail_after_errors(results)


def measure(length: int, sequences: int, heads: int, device: str, arguments: Any) -> dict[str, Any]:
    """Time one length, print its table and return its numbers."""
    from pretrain.model.attention_backends import ATTENTION_BACKENDS

    wanted = [("bert-a", "sdpa", PLAIN)]
    for positions in ("tupe-a", "tupe-r"):
        wanted += [(positions, name, f"{name}, {positions}") for name in ATTENTION_BACKENDS]
    builders: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    obstacles: dict[str, str] = {}
    for positions, backend, label in wanted:
        settings = settings_of(positions, length, heads)
        obstacle = obstacle_of(backend, settings, device)
        if obstacle is not None:
            obstacles[label] = obstacle
            continue
        checks[label] = partial(worst_error, backend, settings, device)
        builders[label] = partial(attention_step, backend, settings, sequences, device)
    failures: dict[str, str] = {}
    errors = attempted(checks, failures)
    variants, broken = ready({label: builders[label] for label in errors})
    timing = alternate(variants, arguments.steps, device=device, clock=arguments.clock)
    seconds = {label: spread(found) for label, found in timing.seconds.items()}
    rows = []
    for label, found in seconds.items():
        ratio = f"{found['median'] / seconds[PLAIN]['median']:.2f}" if PLAIN in seconds else "-"
        rows.append((label, *milliseconds(found), ratio, f"{errors[label]:.1e}"))
    headers = ("", "median ms", "quartiles", "x no bias", "worst error")
    print_rows(f"{sequences} x {heads} heads x {length} x {HEAD_WIDTH}", headers, rows)
    for label, reason in obstacles.items():
        print(f"{label}: {reason}")
    return {
        "length": length,
        "sequences": sequences,
        "seconds": seconds,
        "errors": errors,
        "obstacles": obstacles,
        "failures": failures | broken,
        "gpu": timing.gpu,
    }


def settings_of(positions: str, length: int, heads: int) -> Any:
    """Return the model settings of such an attention."""
    from pretrain.config.recipe import load_settings

    numbers = {
        "model.positions": positions,
        "model.width": heads * HEAD_WIDTH,
        "model.num_heads": heads,
        "model.max_sequence_length": length,
        "data.sequence_length": length,
    }
    return load_settings("tiny_cpu", [w for k, v in numbers.items() for w in (f"--{k}", str(v))])


def obstacle_of(backend: str, settings: Any, device: Any) -> str | None:
    """Return why a run would be refused this backend here, or None."""
    import torch

    from pretrain.config.errors import ConfigError
    from pretrain.engine.execution import Machine, plan_execution

    capability = torch.cuda.get_device_capability() if device == "cuda" else (0, 0)
    words = {"engine": settings.engine.model_copy(update={"attention": backend})}
    machine = Machine(device, torch.bfloat16, 0, capability)
    try:
        plan_execution(settings.model_copy(update=words), machine)
    except ConfigError as error:
        return str(error).partition(": ")[2]
    return None


def worst_error(backend: str, settings: Any, device: str) -> float:
    """Return the largest relative error of output and gradients of a backend."""
    import torch

    from pretrain.model.kernel_check import errors_of

    errors = errors_of(
        backend,
        settings.model,
        length=settings.data.sequence_length,
        device=device,
        dtype=torch.bfloat16,
        autocasts=True,
        reference=torch.float64,
    )
    return max(errors.values())


def attention_step(backend: str, settings: Any, sequences: int, device: str) -> Any:
    """Return a function that runs forward and backward once."""
    import torch

    from pretrain.model.attention_backends import ATTENTION_BACKENDS, AttentionInputs
    from pretrain.model.encoder import build_position_encoding

    model = settings.model
    encoding = build_position_encoding(model).to(device)
    shape = (sequences, settings.data.sequence_length, 3, model.num_heads, model.head_width)
    projected = torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
    q_BNSH, k_BNSH, v_BNSH = projected.permute(2, 0, 3, 1, 4)
    upstream_BNSH = torch.randn(q_BNSH.shape, device=device, dtype=torch.bfloat16)
    terms = encoding.terms(shape[1], device=device, folded=backend == "folded")
    # The bias is shared by all layers: its own computation is no part of a layer's attention.
    parts = (terms.bias_NSS, *(terms.folded or ()))
    leaves: list[Any] = [
        part.detach().requires_grad_() if part is not None else None for part in parts
    ]
    terms = terms._replace(
        bias_NSS=leaves[0],
        folded=None if terms.folded is None else type(terms.folded)(*leaves[1:]),
    )
    inputs = [projected, *(leaf for leaf in leaves if leaf is not None)]
    attend = ATTENTION_BACKENDS[backend]
    attended = AttentionInputs(q_BNSH, k_BNSH, v_BNSH, terms, encoding.score_scale)

    def step() -> None:
        output_BNSH = attend(attended)
        torch.autograd.grad(output_BNSH, inputs, upstream_BNSH, retain_graph=True)

    return step


if __name__ == "__main__":
    run_program(lambda _: main())
