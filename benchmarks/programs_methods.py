"""Public programs of other methods than a network trained on labelled batches.

Diffusion, graphs, agents, probabilistic programs, differential equations,
differential privacy, two passes per update, and JAX without a framework.
"""

from __future__ import annotations

import programs_data as data
from program import Program

METHODS_COMMITS = {
    "tanelp/tiny-diffusion": "726b6bbbf2c9e3d23dff9eaea2fda10d0af6a78c",
    "seungeunrho/minimalRL": "c8efed8481e3cd40e9739cfde220a55522555b57",
    "karpathy/ng-video-lecture": "52201428ed7b46804849dea0b3ccf0de9df1a5c3",
    "spro/char-rnn.pytorch": "282bcb6b15ab3929d6a588b455cfc0f19f32add4",
    "kuangliu/pytorch-cifar": "49b7aa97b0c12fe0d4054e670403a16b6b834ddd",
    "pytorch/opacus": "4d0ebc84613d214fbfd37fbfd1390e3747a625ce",
    "pyro-ppl/pyro": "ff6ae1c9572591791aae8842bcd702fcf0b46fd6",
    "greydanus/hamiltonian-nn": "bcc362235dc623ffe48f22ccc22417e02e9803b4",
    "davda54/sam": "3c3afdbd71cff2462ec91c734b3d1170bd0f3707",
    "google/jax": "3bd8ca480a5ed0d88c19a821d53324759db0bc35",
    "skorch-dev/skorch": "5db0ddc962117a2c3a646910ecd2e70253ff8e87",
}


def _agent(name: str, step: str) -> Program:
    return Program(
        name=f"minimalRL {name}",
        repository="seungeunrho/minimalRL",
        path=f"{name}.py",
        step=step,
        ends=False,
    )


def _probabilistic(name: str, args: str, step: str) -> Program:
    return Program(
        name=f"pyro {name}",
        repository="pyro-ppl/pyro",
        path=f"examples/{name}.py",
        args=args,
        step=step,
        needs=(".",),
    )


def _jax(name: str, step: str) -> Program:
    return Program(
        name=f"jax {name}", repository="google/jax", path=f"examples/{name}.py", step=step
    )


def _graph(name: str, args: str, step: str) -> Program:
    return Program(
        name=f"pyg {name}",
        repository="pyg-team/pytorch_geometric",
        path=f"examples/{name}.py",
        args=args,
        step=step,
        data=((data.planetoid, "data/Planetoid/Cora/raw"),),
    )


def _equation(name: str, args: str, step: str) -> Program:
    return Program(
        name=f"torchdiffeq {name}",
        repository="rtqichen/torchdiffeq",
        path=f"examples/{name}.py",
        args=args,
        step=step,
        needs=(".",),
    )


METHODS = (
    Program(
        name="tiny-diffusion",
        repository="tanelp/tiny-diffusion",
        path="ddpm.py",
        args="--num_epochs 12 --save_images_step 6",
        step="train 32x2",
    ),
    *(
        _agent(name, step)
        for name, step in (
            ("sac", "train 32x3|train"),
            ("ppo", "train"),
            ("dqn", "train 32x4"),
            ("a3c", "train"),
            ("ppo-lstm", "train"),
        )
    ),
    Program(
        name="ng-video-lecture bigram",
        repository="karpathy/ng-video-lecture",
        path="bigram.py",
        step="train 32x8",
    ),
    Program(
        name="ng-video-lecture gpt",
        repository="karpathy/ng-video-lecture",
        path="gpt.py",
        step="train 64x256|forward 64x256",
        ends=False,
    ),
    Program(
        name="char-rnn",
        repository="spro/char-rnn.pytorch",
        path="train.py",
        args="words.txt --n_epochs 30 --chunk_len 30 --batch_size 20 --print_every 10",
        step="train 20",
        data=((data.words, "words.txt"),),
    ),
    Program(
        name="pytorch-cifar",
        repository="kuangliu/pytorch-cifar",
        path="main.py",
        step="train 128x3x32x32",
        ends=False,
        data=((data.cifar, "data"),),
    ),
    Program(
        name="opacus mnist",
        repository="pytorch/opacus",
        path="examples/mnist.py",
        args="--device cpu -n 1 -b 64 --data-root mnist",
        step=r"train( \d+x1x28x28)?",  # batches of any size
        needs=(".",),
        data=((data.mnist, "examples/mnist"),),
    ),
    _probabilistic("svi_torch", "--num-epochs 2", "train 100"),
    _probabilistic("lda", "-n 60", "train"),
    _probabilistic("eight_schools/mcmc", "--num-samples 60 --warmup-steps 20", "step"),
    Program(
        name="hamiltonian-nn spring",
        repository="greydanus/hamiltonian-nn",
        path="experiment-spring/train.py",
        args="--total_steps 200 --verbose --print_every 50",
        step="train 750x2",
    ),
    _equation("latent_ode", "--niters 30", "train"),
    _equation("cnf", "--niters 20 --num_samples 128", "train"),
    Program(
        name="sam",
        repository="davda54/sam",
        path="example/train.py",
        args="--depth 10 --width_factor 1 --batch_size 32 --epochs 1 --threads 0",
        step="train 32x3x32x32",
        ends=False,
        data=((data.cifar, "example/data"), (data.cifar, "example/cifar")),
    ),
    Program(
        name="skorch word_language_model",
        repository="skorch-dev/skorch",
        path="examples/word_language_model/train.py",
        args="--no-cuda --epochs 1 --data-limit 4000",
        step="train",
        needs=(".",),
        data=((data.wikitext, "examples/word_language_model/data/penn"),),
    ),
    _graph("gat", "--epochs 30", "train 2708x1433"),
    _graph("autoencoder", "--epochs 30", "train"),
    _graph("link_pred", "", "train 2708x1433"),
    Program(
        name="gat",
        repository="pytorch/examples",
        path="gat/main.py",
        args="--epochs 40",
        step="train",
        data=((data.cora, "gat/cora"),),
    ),
    Program(
        name="nanoGPT compiled",
        repository="karpathy/nanoGPT",
        path="train.py",
        args="config/train_shakespeare_char.py --device=cpu --compile=True --eval_iters=5"
        " --eval_interval=20 --log_interval=1 --block_size=64 --batch_size=12 --n_layer=2"
        " --n_head=4 --n_embd=64 --max_iters=40 --dropout=0.0 --always_save_checkpoint=False",
        step="train 12x64",
        data=((data.shakespeare, "data/shakespeare_char"),),
    ),
    _jax("advi", "step|call|cached"),
    _jax("gaussian_process_regression", "step|call|cached"),
    _jax("kernel_lsq", "step|call|cached"),
)
