"""What to type so that a script which another one starts is observed."""

import pytest

from boundby.capture.process.commands import observing


@pytest.mark.parametrize(
    "command, expected",
    [
        (["python3", "-u", "train.py", "--lr", "1"], "boundby run train.py --lr 1"),
        ("cd x && CUDA_VISIBLE_DEVICES=0 python train.py", "boundby run train.py"),
        (["bash", "-c", "python -m pkg.train"], "boundby run -m pkg.train"),
        (
            ["torchrun", "--nproc-per-node", "2", "train.py", "a b"],
            "torchrun --nproc-per-node 2 -m boundby run train.py 'a b'",
        ),
        (
            "accelerate launch --cpu train.py",
            "accelerate launch --cpu -m boundby run train.py",
        ),
        (
            ["/usr/bin/python", "-m", "torch.distributed.run", "--nnodes=1", "train.py"],
            "python -m torch.distributed.run --nnodes=1 -m boundby run train.py",
        ),
        (["bash", "run.sh"], "`boundby run` instead of `python` in run.sh"),
        (["python", "-c", "pass"], None),
        (["python", "-m", "torch._inductor.compile_worker"], None),
        (["git", "status"], None),
        ("an 'open quote", None),
        ([1, 2], None),
        ([], None),
    ],
)
def test_command_that_observes_the_started_script(command: object, expected: str | None) -> None:
    assert observing(command) == expected


def test_a_rank_is_observed_through_its_launcher() -> None:
    found = observing(["python", "train.py"], {"WORLD_SIZE": "2"})
    assert found == "torchrun ... -m boundby run train.py"
