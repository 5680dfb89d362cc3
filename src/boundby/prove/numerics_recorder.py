"""What a program computes in its first steps, written down so that two runs can be compared.

The first steps run with dropout off, the next with dropout seeded: first the exact comparison, then
the one within the spread of dropout. Around each outermost call the generators are put aside and
seeded: however a changed program draws its random numbers, the data that the script draws between
the calls stay the same. After these steps nothing is left in the way of what is timed.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from typing import Any

from boundby.capture.process.import_hooks import when_imported
from boundby.capture.process.patching import PatchSet
from boundby.capture.process.step_hooks import StepHook, active_hooks
from boundby.capture.torch.precision import float32_allowed

# Three steps: the first sees forward and backward, the second and third the optimizer's doing too.
EXACT_STEPS = 3
SEEDED_STEPS = 4
# Of an output: enough to see it change, little enough to keep.
_MOST_VALUES = 4096
_MOST_CALLS = 16
_PRINTED = 32
# What weights are off by, relatively, in a nudged run: as much as rounding does to products.
NUDGES = {"float64": 1e-12, "float32": 1e-6, "tf32": 2**-13, "float16": 2**-13, "bfloat16": 2**-10}
_DROPOUTS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
)


class NumericsRecorder(StepHook):
    """Goes along for `EXACT_STEPS + SEEDED_STEPS` steps and writes down losses and outputs."""

    def __init__(
        self, torch: Any, *, seed: int, has_dropout: bool, nudged: bool, exact: bool = True
    ) -> None:
        """`has_dropout`: as far as is known. What was compiled without is compiled again then.

        `nudged`: weights start off by a rounding error, to see how soon losses drift apart. Not
        `exact`: dropout stays on in all steps, and nothing is compiled twice.
        """
        self.losses: list[list[float]] = [[]]  # by step, one of each backward
        self.gradients: list[float] = []  # of the first step, one norm for each parameter
        self.later_gradients: list[float] = []  # of the last exact step
        self.calls: list[dict[str, Any]] = []  # of the exact steps
        self.dropouts = 0
        self.draws_exact = False
        self.draws_seeded = False
        self.precision: str | None = None
        self.modules: list[str] = []
        self._torch = torch
        self._seed = seed
        self._has_dropout = has_dropout
        self._nudged = nudged
        self._exact = exact
        self._off = [exact]
        self._steps = 0
        self._call = 0
        self._before: list[Any] | None = None
        self._seeded: list[Any] | None = None
        self._swaps = PatchSet()
        if exact:
            self._switch_dropout_off()

    @property
    def is_open(self) -> bool:
        return self._steps < EXACT_STEPS + SEEDED_STEPS

    @property
    def _is_exact(self) -> bool:
        return self._exact and self._steps < EXACT_STEPS

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.is_open:
            return
        name = type(called).__name__
        if hasattr(called, "parameters") and name not in self.modules:
            self.modules.append(name)
            if self._is_exact:
                self._switch_recurrent_off(called)
        if self.precision is None:
            self.precision = self._precision_of(called)
            if self._nudged and self.precision is not None:
                self._nudge(called, NUDGES.get(self.precision, NUDGES["bfloat16"]))
        if self._is_exact and len(self.calls) < _MOST_CALLS:
            inputs = self._tensors((args[1:] if args and args[0] is called else args, kwargs))
            self.calls.append({"step": self._steps, "inputs": [self._print(x) for x in inputs]})
        self._before = self._states()
        self._call += 1
        self._torch.manual_seed(1_000_003 * (self._call + (0 if self._is_exact else self._seed)))
        self._seeded = self._states()

    def call_ends(self, called: Any, result: Any) -> None:
        if self._before is None or self._seeded is None:
            return
        drawn = any(
            not self._torch.equal(now, then)
            for now, then in zip(self._states(), self._seeded, strict=False)
        )
        if self._is_exact:
            self.draws_exact |= drawn
        else:
            self.draws_seeded |= drawn
        self._restore(self._before)
        self._before = None
        if self._is_exact and self.calls and "outputs" not in self.calls[-1]:
            values = [x for x in self._tensors(result) if x.is_floating_point()]
            self.calls[-1]["outputs"] = [self._sample(x) for x in values[:4]]

    def backward_begins(self, roots: Any) -> None:
        if not self.is_open or roots is None:
            return
        for root in self._tensors(roots):
            self.losses[-1].append(_finite(float(root.detach().float().sum())))

    def optimizer_begins(self, optimizer: Any) -> None:
        if not self.is_open:
            return
        if not self.gradients:
            self.gradients = self._norms(optimizer)
        # In the first step nothing that is captured or compiled is replayed yet.
        elif self._steps == EXACT_STEPS - 1 and not self.later_gradients:
            self.later_gradients = self._norms(optimizer)

    def _norms(self, optimizer: Any) -> list[float]:
        norms = [
            parameter.grad.detach().float().norm()
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and not parameter.grad.is_sparse
        ]
        if not norms:
            return []
        norms = [norm.to(norms[0].device) for norm in norms]
        return [_finite(x) for x in self._torch.stack(norms).tolist()]

    def step_ended(self) -> None:
        if not self.is_open:
            return
        self._steps += 1
        if self.is_open:
            self.losses.append([])
        if self._steps == EXACT_STEPS and self._exact:
            self._switch_dropout_on()

    def close(self) -> None:
        """Leave nothing behind, however far it came."""
        self._steps = EXACT_STEPS + SEEDED_STEPS
        self._off[0] = False
        self._swaps.undo()

    def written(self) -> dict[str, Any]:
        return {
            "losses": [step for step in self.losses if step],
            "gradients": self.gradients,
            "later_gradients": self.later_gradients,
            "calls": [call for call in self.calls if "outputs" in call],
            "dropouts": self.dropouts,
            "draws_exact": self.draws_exact,
            "draws_seeded": self.draws_seeded,
            "precision": self.precision,
            "modules": self.modules,
            "exact": self._exact,
        }

    def _precision_of(self, called: Any) -> str | None:
        """In which dtype the products of a module are computed."""
        torch = self._torch
        parameter = next(iter(called.parameters()), None) if hasattr(called, "parameters") else None
        if parameter is None:
            return None
        device = parameter.device.type
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        if parameter.dtype == torch.float32:
            allowed = float32_allowed(torch)["cuda" if device == "cuda" else "cpu"]
            kinds = [allowed["products"]]
            if any(isinstance(one, torch.nn.modules.conv._ConvNd) for one in called.modules()):
                kinds.append(allowed["convolutions"])
            return "tf32" if {"tf32", "bfloat16"} & set(kinds) else "float32"
        return str(parameter.dtype).removeprefix("torch.")

    def _nudge(self, module: Any, size: float) -> None:
        torch = self._torch
        generators: dict[Any, Any] = {}
        with torch.no_grad():
            for weight in module.parameters():
                if not weight.is_floating_point():
                    continue
                if weight.device not in generators:
                    made = torch.Generator(weight.device).manual_seed(self._seed)
                    generators[weight.device] = made
                noise = torch.empty_like(weight).normal_(generator=generators[weight.device])
                weight.mul_(noise.mul_(size).add_(1))

    def _tensors(self, tree: Any) -> list[Any]:
        from torch.utils import _pytree

        return [x for x in _pytree.tree_leaves(tree) if isinstance(x, self._torch.Tensor)]

    def _print(self, tensor: Any) -> dict[str, Any]:
        """A fingerprint of an input: whole numbers exactly, others by a few of them."""
        values = tensor.detach().reshape(-1)
        kept: dict[str, Any] = {"shape": list(tensor.shape)}
        if tensor.is_floating_point():
            stride = max(1, values.numel() // _PRINTED)
            kept["values"] = [_finite(x) for x in values[::stride][:_PRINTED].float().tolist()]
        elif not tensor.is_complex():
            kept["sum"] = int(values.long().sum())
        return kept

    def _sample(self, tensor: Any) -> list[float]:
        values = tensor.detach().reshape(-1)
        stride = max(1, math.ceil(values.numel() / _MOST_VALUES))
        return [_finite(x) for x in values[::stride].float().cpu().tolist()]

    def _states(self) -> list[Any]:
        torch = self._torch
        states = [torch.get_rng_state()]
        if torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return states

    def _restore(self, states: list[Any]) -> None:
        torch = self._torch
        torch.set_rng_state(states[0])
        if states[1:]:
            torch.cuda.set_rng_state_all(states[1:])

    def _switch_dropout_off(self) -> None:
        functional = self._torch.nn.functional
        for name in _DROPOUTS:
            self._swaps.swap(functional, name, self._without_dropout)
        self._swaps.swap(functional, "scaled_dot_product_attention", self._without_dropout_p)
        self._keep_from_cache()

    def _keep_from_cache(self) -> None:
        """What is compiled without dropout is found by the names of what it calls: by dropout's.

        Whoever asked for the same model with dropout would be given it.
        """
        off = self._off

        def arrived(config: Any) -> None:
            if off[0]:
                self._swaps.swap(config, "enable_autograd_cache", lambda _: False)

        when_imported("torch._functorch.config", arrived)

    def _switch_recurrent_off(self, called: Any) -> None:
        """Recurrent layers drop out inside their own kernels."""
        for module in called.modules():
            if isinstance(module, self._torch.nn.RNNBase) and module.dropout:
                self._swaps.swap(module, "dropout", lambda _: 0.0)
                self.dropouts += 1

    def _switch_dropout_on(self) -> None:
        self._off[0] = False
        self._swaps.undo()
        for companion in active_hooks:
            companion.start_over()
        dynamo = sys.modules.get("torch._dynamo")
        # Dynamo takes torch's own functions for constants: what it has compiled has no dropout.
        if dynamo is not None and self._has_dropout:
            dynamo.reset()

    def _without_dropout(self, original: Any) -> Any:
        off, is_compiling = self._off, self._torch.compiler.is_compiling
        trains = bool(inspect.signature(original).parameters["training"].default)

        @functools.wraps(original)
        def dropout(input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002 - its own name
            p = args[0] if args else kwargs.get("p", 0.5)
            training = args[1] if len(args) > 1 else kwargs.get("training", trains)
            if not off[0] or not training or not p:
                return original(input, *args, **kwargs)
            if not is_compiling():
                self.dropouts += 1
            return input

        return dropout

    def _without_dropout_p(self, original: Any) -> Any:
        off, is_compiling = self._off, self._torch.compiler.is_compiling

        @functools.wraps(original)
        def attention(
            query: Any,
            key: Any,
            value: Any,
            attn_mask: Any = None,
            dropout_p: float = 0.0,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            if off[0] and dropout_p:
                if not is_compiling():
                    self.dropouts += 1
                dropout_p = 0.0
            return original(query, key, value, attn_mask, dropout_p, *args, **kwargs)

        return attention


def _finite(value: float) -> float:
    """JSON has no inf and nan; nothing that is right is this large."""
    return value if math.isfinite(value) else math.copysign(1e300, value)
