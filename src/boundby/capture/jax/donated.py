"""Arguments of a step that donates some of them: the results take their places in the next call."""

from __future__ import annotations

from typing import Any

from boundby.model.errors import BoundbyError


def next_arguments(
    jax: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the next call: a donated one is replaced by the first result of its
    structure, shapes and dtypes. `args` and `kwargs` themselves if nothing was donated."""
    given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
    gone = [name for name, value in given.items() if _is_donated(jax, value)]
    if not gone:
        return args, kwargs
    parts = _parts(result)
    for name in gone:
        wanted = _kind(jax, given[name])
        at = next((at for at, part in enumerate(parts) if _kind(jax, part) == wanted), None)
        if at is None:
            raise BoundbyError(
                f"the step donates its argument {name!r} and returns nothing that can take its "
                "place in the next call: diagnose it without donation, or a function that also "
                "makes this argument"
            )
        given[name] = parts.pop(at)
    return tuple(given[at] for at in range(len(args))), {name: given[name] for name in kwargs}


def _parts(result: Any) -> list[Any]:
    """The objects that a result may pass on: itself, its elements and their elements."""
    parts = [result]
    if isinstance(result, tuple | list):
        parts += result
        for part in result:
            parts += part if isinstance(part, tuple | list) else []
    return parts


def _is_donated(jax: Any, value: Any) -> bool:
    leaves = jax.tree_util.tree_leaves(value)
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def _kind(jax: Any, value: Any) -> Any:
    """Structure, shapes and dtypes of a tree of arrays."""
    leaves, structure = jax.tree_util.tree_flatten(value)
    return structure, [
        (getattr(leaf, "shape", None), str(getattr(leaf, "dtype", ""))) for leaf in leaves
    ]
