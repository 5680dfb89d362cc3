"""What is said of several fixes together."""

from boundby.trials.proving import together


def test_a_line_that_several_ask_for_is_written_once() -> None:
    masks = "masking_utils.is_tracing = no"
    changes = [
        "AdamW(..., fused=True)",
        f"{masks}  # with nothing padded\nmodel = graphed(model)",
        f'attn_implementation="sdpa"\n{masks}  # if compiled',
    ]
    assert together(changes).splitlines() == [
        "AdamW(..., fused=True)",
        f"{masks}  # with nothing padded",
        "model = graphed(model)",
        'attn_implementation="sdpa"',
    ]


def test_blocks_keep_their_lines() -> None:
    blocks = ["with autocast():\n    loss = model(x)", "with other():\n    loss = model(x)"]
    assert together(blocks) == "\n".join(blocks)
    alike = ["with autocast():\n    loss = model(x)", "with autocast():\n    logits = model(x)"]
    assert together(alike) == "\n".join(alike)
