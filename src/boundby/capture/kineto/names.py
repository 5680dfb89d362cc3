"""Names in a trace are untrusted text: what may be shown of them, and what they mean."""

from __future__ import annotations

import enum
import functools
import re
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from boundby.capture.own_files import is_generated_file, is_own_file

_LONGEST = 4096  # memory limit; longer names are cut
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_FRAME = re.compile(r"^(?P<path>.+?)\((?P<line>\d{1,9})\): (?P<function>.*)$", re.DOTALL)
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_STDLIB = re.compile(r"^.*/lib/python3[^/]*/")
_NOTEBOOK = re.compile(r"ipykernel|ipython-input|^<stdin>$")
_MODULE = "nn.Module: "

# Frameworks whose paths the profiler shortens to the package name: the user's line is further out.
# Anything neither listed nor installed here is taken for the user's, so that an error still gives a
# line that the user can find.
_FRAMEWORKS = frozenset(
    {
        "accelerate",
        "apex",
        "bitsandbytes",
        "click",
        "datasets",
        "deepspeed",
        "diffusers",
        "einops",
        "fairscale",
        "fastai",
        "fbgemm_gpu",
        "flash_attn",
        "functorch",
        "huggingface_hub",
        "ignite",
        "IPython",
        "ipykernel",
        "jax",
        "joblib",
        "lightning",
        "lightning_fabric",
        "litgpt",
        "megatron",
        "multiprocess",
        "numpy",
        "pandas",
        "peft",
        "PIL",
        "pluggy",
        "_pytest",
        "pytest",
        "pytorch_lightning",
        "ray",
        "safetensors",
        "scipy",
        "sentence_transformers",
        "sglang",
        "sklearn",
        "tensorboard",
        "timm",
        "tokenizers",
        "torchao",
        "torchaudio",
        "torchmetrics",
        "torchrec",
        "torchtext",
        "torchvision",
        "tqdm",
        "traitlets",
        "transformer_engine",
        "transformers",
        "triton",
        "trl",
        "unsloth",
        "vllm",
        "wandb",
        "xformers",
    }
)


class Origin(enum.IntEnum):
    """Whose code a Python frame is."""

    NOT_A_FRAME = 0
    TORCH = 1  # torch, generated code, the standard library, the interpreter, the observer
    LIBRARY = 2
    USER = 3


class Frame(NamedTuple):
    origin: Origin
    source: str  # "train.py:42"


_NO_FRAME = Frame(Origin.NOT_A_FRAME, "")


def clean(text: str) -> str:
    """Text that may be printed: no control characters, no addresses, limited length."""
    text = _ADDRESS.sub("", text[:_LONGEST])
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def module_of(name: str) -> str | None:
    """`BertLayer_3` of the Python event `nn.Module: BertLayer_3`."""
    return clean(name.removeprefix(_MODULE)) if name.startswith(_MODULE) else None


def frame_of(name: str) -> Frame:
    """Whose code the Python event `path(line): function` is, and its place."""
    match = _FRAME.match(name)
    if match is None:
        return _NO_FRAME
    path = match["path"].replace("\\", "/")
    origin = origin_of(path)
    return Frame(origin, clean(f"{shortened(path)}:{match['line']}"))


def is_own(name: str) -> bool:
    """Whether the Python event `path(line): function` is a function of boundby's."""
    match = _FRAME.match(name)
    return match is not None and is_own_file(match["path"])


def origin_of(path: str) -> Origin:
    """Whose code a file contains."""
    if _NOTEBOOK.search(path):
        return Origin.USER
    inside = _PACKAGES.sub("", path)
    top = inside.split("/", 1)[0]
    if path.startswith("<") or "/torch/_" in inside or is_generated_file(path):
        return Origin.TORCH
    if top == "torch" or is_own_file(path) or is_own_file(inside):
        return Origin.TORCH
    if inside != path:
        return Origin.LIBRARY
    if _STDLIB.search(path):
        return Origin.TORCH
    if _is_launcher(path):
        return Origin.LIBRARY
    if sys.path and _is_in(sys.path[0], path):
        return Origin.USER
    if top in _FRAMEWORKS:
        return Origin.LIBRARY
    if top.removesuffix(".py") in sys.stdlib_module_names:
        return Origin.TORCH
    return Origin.LIBRARY if _is_installed(path, tuple(sys.path)) else Origin.USER


def _exists(file: Path) -> bool:
    """Whether there is such a file; not if a name in a trace cannot be a file's, as a very long
    one."""
    try:
        return file.is_file()
    except OSError:
        return False


@functools.cache
def _is_launcher(path: str) -> bool:
    """Whether a path, perhaps shortened by the profiler, is that of an installed command, as
    `boundby`, `torchrun`, `accelerate`."""
    scripts = Path(sysconfig.get_path("scripts"))
    return not path.endswith(".py") and _exists(scripts / path)


@functools.cache
def _is_in(script_folder: str, path: str) -> bool:
    """Whether a shortened path is that of a module beside the script.

    Programs have their own `profile.py` or a folder `datasets`. Python looks into the script's
    folder first, and boundby's own is none where Python's packages are.
    """
    file = Path(script_folder, path)
    inside = file.as_posix()
    return not (_PACKAGES.match(inside) or _STDLIB.match(inside)) and _exists(file)


@functools.cache
def _is_installed(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a shortened path is that of an installed package's module."""
    installed = (one for one in folders if one.endswith(("/site-packages", "/dist-packages")))
    return any(_exists(Path(folder, path)) for folder in installed)


def shortened(path: str) -> str:
    """A short form of a path: inside a package the path from there on; for another absolute path
    its last two parts."""
    inside = _STDLIB.sub("", _PACKAGES.sub("", path))
    return "/".join(inside.split("/")[-2:]) if inside.startswith("/") else inside
