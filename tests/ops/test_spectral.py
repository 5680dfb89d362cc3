from pathlib import Path

import pytest

from boundby import ops as costs
from tests.ops.builders import cost, t
from tests.ops.recording import record

ROWS, N = 32, 1024  # log2 N = 10


def test_complex_fft_matches_hand_arithmetic() -> None:
    found = cost("_fft_c2c", t(ROWS, N, dtype="complex64"), (1,), 0, True)
    assert (found.bytes_read, found.bytes_written) == (8 * ROWS * N, 8 * ROWS * N)
    assert found.flops == {"vector.float32": 5 * ROWS * N * 10}


def test_real_fft_keeps_one_side_at_half_the_flops() -> None:
    found = cost("_fft_r2c", t(ROWS, N), (1,), 0, True)
    assert (found.bytes_read, found.bytes_written) == (4 * ROWS * N, 8 * ROWS * (N // 2 + 1))
    assert found.flops == {"vector.float32": 2.5 * ROWS * N * 10}
    assert cost("_fft_r2c", t(ROWS, N), (1,), 0, False).bytes_written == 8 * ROWS * N


def test_inverse_real_fft_matches_hand_arithmetic() -> None:
    found = cost("_fft_c2r", t(ROWS, N // 2 + 1, dtype="complex64"), (1,), 2, N)
    assert (found.bytes_read, found.bytes_written) == (8 * ROWS * (N // 2 + 1), 4 * ROWS * N)
    assert found.flops == {"vector.float32": 2.5 * ROWS * N * 10}


def test_fft_over_several_axes_counts_their_product() -> None:
    found = cost("_fft_c2c", t(32, 32, dtype="complex128"), (0, 1), 0, True)
    assert found.flops == {"vector.float64": 5 * N * 10}


def test_spectrogram_operators_of_torch_are_costed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    sound, window = torch.randn(16000), torch.hann_window(512)

    def there_and_back() -> None:
        spectrum = torch.stft(sound, 512, 128, window=window, return_complex=True)
        torch.istft(spectrum, 512, 128, window=window)
        torch.fft.fft2(torch.randn(8, 8, dtype=torch.complex64))

    roots = record(there_and_back, tmp_path)
    calls = [op.call for root in roots for op in root.walk() if "_fft_" in op.call.name]
    assert {call.name for call in calls} == {"aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c"}
    assert all(costs.cost(call) is not None for call in calls)
