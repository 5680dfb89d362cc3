"""Products with a sparse matrix, whose shape says nothing of how much it holds."""

from boundby.model import OpCall, Tensor
from boundby.ops import cost

SPARSE = Tensor(shape=(2000, 2000), dtype="float32", sparse=True)
DENSE = Tensor(shape=(2000, 64), dtype="float32")


def test_a_sparse_product_reads_the_dense_factor_and_writes_the_result() -> None:
    found = cost(OpCall(name="aten::mm", args=(SPARSE, DENSE)))
    assert found is not None
    # At least one value a row: far from the 2 * 2000 * 2000 * 64 of a dense product.
    assert found.flops == {"vector.float32": 2 * 2000 * 64}
    assert found.bytes_read == found.bytes_written == 2000 * 64 * 4
    assert found.upper_bound
    added = cost(OpCall(name="aten::addmm", args=(DENSE, SPARSE, DENSE)))
    assert added == found


def test_other_sparse_operators_have_unknown_cost() -> None:
    assert cost(OpCall(name="aten::relu", args=(SPARSE,))) is None
    assert cost(OpCall(name="aten::mm", args=(SPARSE, SPARSE))) is None
