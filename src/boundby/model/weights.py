"""The weights of a model whose sizes are given beside a trace."""

from __future__ import annotations

from boundby.model.record import Record


class ModelWeights(Record, frozen=True, kw_only=True):
    """Numbers of weights, for the minimum bytes that one pass over a batch reads.

    `layers_params` and `head_params` are read in every pass; of `expert_params`, the routed experts
    of all layers, those that the batch reaches. `layer_bytes` is the size of one weight of a layer
    if quantized; None: as in the trace or `dtype_bytes`.
    """

    name: str
    layers: int
    hidden: int
    layers_params: float
    head_params: float
    expert_params: float = 0.0
    experts: int = 0
    active_experts: int = 0
    layer_bytes: float | None = None
    dtype_bytes: float = 2.0

    def experts_reached(self, tokens: float) -> float:
        """The number of routed experts of a layer that this many tokens reach, each choosing
        evenly."""
        if not self.experts:
            return 0.0
        missed = float((1 - self.active_experts / self.experts) ** tokens)
        return self.experts * (1 - missed)

    def read_bytes(self, tokens: float, dtype_bytes: float) -> float:
        """The bytes of the weights that one pass of this many tokens reads."""
        share = self.experts_reached(tokens) / self.experts if self.experts else 0.0
        each = dtype_bytes if self.layer_bytes is None else self.layer_bytes
        params = self.layers_params + share * self.expert_params
        return params * each + self.head_params * dtype_bytes
