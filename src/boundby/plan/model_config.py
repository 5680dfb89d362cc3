"""The sizes of a transformer, and what follows from them: parameters, cache, operations."""

from __future__ import annotations

from boundby.model import Record


class Latent(Record, frozen=True, kw_only=True):
    """Multi-head latent attention: low-rank queries and keys, a part of each head rotated."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class ModelConfig(Record, frozen=True, kw_only=True):
    """Sizes of a decoder, or of an encoder or diffusion transformer with `causal` off.

    `window` tokens are seen by the `windowed` share of the layers. Layers from `dense_layers` on
    have experts, every `moe_every`-th of them; `shared_experts` see every token. `positions` are
    the tokens of the longest sequence it was made for, `tokens` those of one image. Without a
    `head` no words are predicted; `table_params` are those of positions and patches. A condition
    scales and shifts layers by `modulation` hidden x hidden weights each, which meet one row an
    image; `twin_layers` have weights of their own for the tokens of a text. `stored`
    is the type of published weights that are quantized. `notes` say how the
    config was read where a reader of the plan has to know.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    causal: bool = True
    head: bool = True
    table_params: int = 0
    experts: int = 0
    active_experts: int = 0
    moe_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    moe_every: int = 1
    window: int | None = None
    windowed: float = 0.0
    latent: Latent | None = None
    positions: int | None = None
    tokens: int | None = None
    modulation: float = 0.0
    twin_layers: int = 0
    stored: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def moe_layers(self) -> int:
        return (self.layers - self.dense_layers) // self.moe_every if self.experts else 0

    @property
    def sparsity(self) -> float:
        """Experts over those that are active: so many times the tokens meet the same work."""
        return self.experts / self.active_experts if self.experts else 1.0

    @property
    def attention_params(self) -> int:
        """Weights of one layer's attention."""
        if self.latent is None:
            wide = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
            return self.hidden * wide
        it = self.latent
        head = it.nope_dim + it.rope_dim
        query = (
            it.q_rank * (self.hidden + self.heads * head)
            if it.q_rank
            else self.hidden * self.heads * head
        )
        key = self.hidden * (it.kv_rank + it.rope_dim)
        key += it.kv_rank * self.heads * (it.nope_dim + it.value_dim)
        return query + key + self.heads * it.value_dim * self.hidden

    @property
    def dense_ffn_params(self) -> int:
        return (3 if self.gated else 2) * self.hidden * self.ffn

    def expert_params(self, count: float) -> float:
        """Weights of so many experts of one layer."""
        return count * (3 if self.gated else 2) * self.hidden * self.moe_ffn

    def _ffn_params(self, experts: float) -> float:
        moe = self.expert_params(experts + self.shared_experts) + self.hidden * self.experts
        return self.moe_layers * moe + (self.layers - self.moe_layers) * self.dense_ffn_params

    @property
    def vocab_params(self) -> int:
        return self.vocab * self.hidden * (1 if self.tied or not self.head else 2)

    @property
    def params(self) -> float:
        """All matrix weights; norms and biases are left out (below 0.1%)."""
        layers = self.layers * self.attention_params + self._ffn_params(self.experts)
        layers += self.twin_layers * (self.attention_params + self.dense_ffn_params)
        modulation = self.modulation * (self.layers + self.twin_layers) * self.hidden**2
        return layers + modulation + self.vocab_params + self.table_params

    @property
    def active_params(self) -> float:
        """Weights that multiply one token: active experts, and the output head once."""
        used = self.layers * self.attention_params + self._ffn_params(self.active_experts)
        return used + (self.vocab * self.hidden if self.head else 0)

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of the cache that one token adds in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    def scored_keys(self, sequence: int) -> float:
        """Keys that a query sees, on the average over queries and layers."""

        def seen(window: int | None) -> float:
            if not self.causal:
                return float(sequence)
            if window is None or window >= sequence:
                return (sequence + 1) / 2
            return window - window * (window - 1) / (2 * sequence)

        return self.windowed * seen(self.window) + (1 - self.windowed) * seen(None)

    def train_flops_per_token(self, sequence: int) -> float:
        """6 per active weight and token, and attention's scored pairs (causal: the triangle)."""
        heads = self.heads * (
            self.head_dim
            if self.latent is None
            else (self.latent.nope_dim + self.latent.rope_dim + self.latent.value_dim) / 2
        )
        return 6 * self.active_params + 12 * self.layers * heads * self.scored_keys(sequence)

    def described(self, tokens: int) -> list[str]:
        """Notes for a plan with sequences of so many tokens: parameters, what the config leaves
        open."""
        size = f"{self.name} has {self.params / 1e9:.3g} billion parameters"
        if self.experts:
            size += f", {self.active_params / 1e9:.3g} billion of which multiply a token"
        found = [size]
        if self.positions and tokens > self.positions:
            found.append(
                f"sequences of {tokens:,} tokens are longer than the {self.positions:,} positions "
                "that the config states"
            )
        return [*found, *self.notes]
