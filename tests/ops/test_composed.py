"""Whole layers, optimizers, collectives and generated kernels."""

import functools

import msgspec

from boundby import ops as costs
from boundby.model import Cost
from tests.ops.builders import cost, t, unknown


def test_recurrent_weights_are_applied_in_every_time_step() -> None:
    # A two-layer LSTM, 16 in, 32 hidden: gates of 4 x 32.
    weights = (t(128, 16), t(128, 32), t(128), t(128), t(128, 32), t(128, 32), t(128), t(128))
    x, h = t(10, 4, 16), t(2, 4, 32)
    found = cost(
        "_cudnn_rnn", x, weights, 4, None, h, h, 2, 32, 0, 2, False, 0.0, True, False, (), None
    )
    matrices = 128 * 16 + 3 * 128 * 32
    assert found.flops == {"matmul.float32": 2 * 40 * matrices}
    assert found.bytes_read == 4 * (640 + matrices + 4 * 128 + 2 * 256)
    layer = cost("mkldnn_rnn_layer", x, *weights[:4], h, h, False, (), 2, 32, 1, True, False, False)
    assert layer.total_flops == 2 * 40 * (128 * 16 + 128 * 32)


def test_weights_without_recorded_dtype_use_the_input_dtype() -> None:
    weights = (t(128, 16), t(128, 32), t(128), t(128))
    told, untold = (
        cost(
            *("_cudnn_rnn", t(10, 4, 16, dtype="float16"), listed, 4, None, None, None),
            *(2, 32, 0, 1, False, 0.0, True, False, (), None),
        )
        for listed in (
            tuple(msgspec.structs.replace(w, dtype=dtype) for w in weights)
            for dtype in ("float16", "")
        )
    )
    assert told == untold and told.flops == {"matmul.float16": 2 * 40 * 128 * 48}


def test_fused_adamw_moves_28_bytes_a_parameter() -> None:
    p = (t(1000), t(24))
    steps = (t(), t())
    found = cost("_fused_adamw_", p, p, p, p, (), steps, 1e-3, 0.9, 0.999, 0.01, 1e-8, False, False)
    assert found.bytes == 28 * 1024
    assert (found.bytes_read, found.bytes_written) == (16 * 1024, 12 * 1024)


def test_fused_sgd_without_momentum_moves_no_state() -> None:
    p = (t(1000),)
    assert cost("_fused_sgd_", p, p, (), 0.0, 0.0, 0.1).bytes == 12 * 1000
    assert cost("_fused_sgd_", p, p, p, 0.0, 0.9, 0.1).bytes == 20 * 1000


def test_foreach_reads_all_lists_and_writes_one() -> None:
    p = (t(1000), t(24))
    assert cost("_foreach_add_", p, p, 1).bytes == 12 * 1024
    assert cost("_foreach_addcdiv_", p, p, p, -0.1).bytes == 16 * 1024
    assert cost("_foreach_sqrt", p).bytes == 8 * 1024
    assert cost("_foreach_zero_", p).bytes == 4 * 1024
    assert unknown("_foreach_add_", None, 1)  # a list too long to be recorded


def test_bucket_view_gradients_are_each_read() -> None:
    moments = tuple(t(256, strides=(1,), storage=at, identity=at) for at in range(4))
    view = functools.partial(t, 256, strides=(1,), storage=9, storage_bytes=4 * 1024)
    grads = tuple(view(identity=4 + at) for at in range(4))
    assert cost("_foreach_lerp_", moments, grads, 0.1).bytes_read == 8 * 1024


def test_collectives_count_their_payload() -> None:
    whole, piece = t(8000), t(1000)
    assert cost("c10d::_allgather_base_", whole, piece).bytes_read == 4000
    assert cost("c10d::_allgather_base_", whole, piece).bytes_written == 32000
    assert cost("c10d::allreduce_", (whole,)).bytes_read == 32000
    assert cost("_c10d_functional::reduce_scatter_tensor", whole, "sum", 8).bytes_written == 4000
    assert costs.op_class("nccl:all_reduce") == "communication"


def test_generated_kernels_touch_each_tensor_once() -> None:
    x, w = t(64, 512, dtype="bfloat16"), t(512)
    found = cost("triton_per_fused_add_native_layer_norm_3", x, x, w, w, x, 64, 512)
    assert found.bytes == 3 * 2 * 64 * 512 + 2 * 4 * 512
    assert unknown("triton_poi_fused_add_0")


def test_generated_kernels_cost_the_operators_in_their_name() -> None:
    x, w, mean = t(64, 512, dtype="bfloat16"), t(512), t(64)
    found = cost("triton_per_fused_add_native_layer_norm_3", x, x, w, w, x, 64, 512)
    assert found.flops == {"vector.float32": 64 * 512 * (1 + 8)}
    # The longest name counts, each once; what is no arithmetic does not, nor what is cut off.
    backward = "triton_per_fused__to_copy_gelu_backward_gelu_native_layer_norm_backward_nati_12"
    assert cost(backward, x, mean, x).flops == {"vector.float32": 64 * 512 * (8 + 5 + 12)}
    assert cost("triton_poi_fused_clone_0", x, x).flops == {}
    assert cost("triton_poi_fused_add_0", t(8, dtype="int64"), t(8, dtype="int64")).flops == {}
    # The rows that are looked up, not the whole table.
    ids, table, out = t(8, 512, dtype="int64"), t(30522, 1024), t(8, 512, 1024)
    found = cost("triton_poi_fused_add_embedding_0", ids, table, out)
    assert found.flops == {"vector.float32": 8 * 512 * 1024}


def test_a_generated_kernel_of_one_tensor_reads_and_writes_it() -> None:
    x = t(64, 512)
    assert cost("triton_poi_fused_relu_0", x, 64 * 512).bytes == 2 * 4 * 64 * 512
    assert cost("triton_poi_fused_zeros_0", x, 64 * 512).bytes == 4 * 64 * 512


def test_generated_gather_reads_at_most_its_output_from_the_table() -> None:
    ids, table, out = t(8, 512, dtype="int64"), t(30522, 1024), t(8, 512, 1024)
    found = cost("triton_poi_fused_embedding_0", ids, table, out, 4194304)
    assert found.bytes == 4096 * (8 + 2 * 4096)
    assert found.upper_bound


def test_gathered_tensor_that_is_also_reduced_is_read_whole() -> None:
    logits, ids, loss = t(512, 8000), t(512, dtype="int64"), t(512)
    found = cost("triton_red_fused__log_softmax_gather_0", logits, ids, loss)
    assert found.bytes == 4 * 512 * 8000 + 8 * 512 + 4 * 512


def test_classes_of_generated_kernels_come_from_their_names() -> None:
    assert costs.op_class("triton_poi_fused_add_gelu_0") == "elementwise"
    assert costs.op_class("triton_red_fused_native_layer_norm_1") == "normalization"
    assert costs.op_class("triton_per_fused__softmax_2") == "normalization"
    assert costs.op_class("triton_red_fused_sum_3") == "elementwise"
    assert costs.op_class("triton_tem_fused_mm_4") == "contraction"
    assert costs.op_class("graph_0_cpp_fused_native_layer_norm_0") == "normalization"


def test_generated_matmul_has_flops() -> None:
    bias, a, b, out = t(128), t(32, 64), t(64, 128), t(32, 128)
    assert cost("triton_tem_fused_addmm_0", bias, a, b, out).total_flops == 2 * 32 * 64 * 128


def test_delegating_operators_are_not_counted_twice() -> None:
    image, filters = t(8, 3, 32, 32), t(16, 3, 3, 3)
    outer = cost("convolution", image, filters, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    inner = cost("mkldnn_convolution", image, filters, None, (1, 1), (1, 1), (1, 1), 1)
    assert costs.own_cost(outer, inner) == Cost()
    product = cost("addmm", t(128), t(32, 64), t(64, 128), 1, 1)
    bias_copied_first = cost("copy_", t(32, 128), t(32, 128, strides=(0, 1)))
    assert costs.own_cost(product, bias_copied_first) == product
    assert costs.own_cost(cost("sum", t(1000), None), cost("fill_", t())).bytes == 4004


def test_generated_in_place_update_is_read_and_written() -> None:
    """Shapes tell it: the result of a pointwise kernel is as large as its largest tensor."""
    x, bias = t(64, 512), t(512)
    found = cost("triton_poi_fused_add_relu_0", x, bias, 32768)
    assert found.bytes_read == 64 * 512 * 4 + 512 * 4
    assert found.bytes_written == 64 * 512 * 4
    alone = cost("triton_poi_fused_relu_1", x, 32768)
    assert (alone.bytes_read, alone.bytes_written) == (131072, 131072)
    made = cost("triton_poi_fused_zeros_2", x, 32768)
    assert (made.bytes_read, made.bytes_written) == (0, 131072)
