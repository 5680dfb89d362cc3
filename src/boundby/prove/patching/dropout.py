"""Writes dropout with short masks for the CPU, as a function of the script."""

from __future__ import annotations

from boundby.prove.patching.process_settings import insert_below_imports
from boundby.prove.patching.program import Program
from boundby.prove.sites import ChosenFix

# The code of `fixes.dropout`, as a user would write it.
_FUNCTION = '''
def dropout_with_short_masks(x, p=0.5, training=True, inplace=False):
    """Draws 16 random bits for each element, and four of those at once."""
    if torch.compiler.is_compiling() or not (
        training
        and not inplace
        and type(x) is torch.Tensor
        and x.device.type == "cpu"
        and x.is_floating_point()
        and x.numel() >= 4096
        and 0.0 < p < 1.0
    ):
        return torch_dropout(x, p, training, inplace)
    dropped = min(65535, max(1, round(p * 65536)))
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 32768
    return x * kept.to(x.dtype).mul_(65536 / (65536 - dropped))
'''
_TORCHS = "torch_dropout = torch.nn.functional.dropout"
_INSTALL = "torch.nn.functional.dropout = dropout_with_short_masks"


def write_short_masks(program: Program, fix: ChosenFix) -> None:
    insert_below_imports(program.script, _TORCHS, f"\n\n{_FUNCTION.strip()}\n", f"\n\n{_INSTALL}\n")
