"""Public programs that boundby is tried on, unedited: where each is, how it is run, what it reads.

None of their code is kept here. `step` is a pattern that the label of the right step matches.
"""

from __future__ import annotations

from typing import Any

import programs_data as data
from program import Program
from programs_methods import METHODS, METHODS_COMMITS

COMMITS = {
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "karpathy/minGPT": "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    "karpathy/makemore": "988aa59e4d8fefa526d06f3b453ad116258398d4",
    "vwxyzjn/cleanrl": "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
    "pytorch/ignite": "de08e799cfb55a6cf4aa778575d6bad725385453",
    "Lightning-AI/pytorch-lightning": "7f0c3436cd3f6ad3753125672024fc415cbcb414",
    "huggingface/pytorch-image-models": "aa4b5850c1543fa488abf260f18390eda46cf85d",
    "huggingface/transformers": "d56c55bf564ddb176759eb6ec199442682564916",
    "facebookresearch/dlrm": "090956ee2319ddd349a42232958aefccfe3f7b0a",
    "lucidrains/x-transformers": "9252ed7838021ee61e6c5be0930b3a9a88efdf06",
    "yunjey/pytorch-tutorial": "0500d3df5a2a8080ccfccbc00aca0eacc21818db",
    "jcjohnson/pytorch-examples": "0003fcdc606a79951e53bf8f46f8574fa4739f23",
    "locuslab/TCN": "2f8c2b817050206397458dfd1f5a25ce8a32fe65",
    "eriklindernoren/PyTorch-GAN": "36d3c77e5ff20ebe0aeefd322326a134a279b93e",
    "tkipf/pygcn": "1600b5b748b3976413d1e307540ccc62605b4d6d",
    "google/flax": "18f8f311c275d57f46d95e41b15aa97b454754c0",
    "pyg-team/pytorch_geometric": "5c6461b2305ad068a6d61165b3c55852a11aaa41",
    "pytorch/vision": "e6f04004f0e0f759b44329d9ee6751a55abf0f83",
    "Diego999/pyGAT": "3664f2dc90cbf971564c0bf186dc794f12446d0c",
    "graykode/nlp-tutorial": "d05e31ec81d56d70c1db89b99ab07e948f7ebc11",
    "milesial/Pytorch-UNet": "21d7850f2af30a9695bbeea75f3136aa538cfc4a",
    "rtqichen/torchdiffeq": "657943acefa826ef04c025ebeb1ff5e9d60dc268",
    "MorvanZhou/PyTorch-Tutorial": "dbe154a9e56635e51c6b0c2ccea8ae36cfb585a7",
    "karpathy/llama2.c": "350e04fe35433e6d2941dce5a1f53308f87058eb",
    **METHODS_COMMITS,
}


def _example(name: str, step: str, args: str = "", path: str = "", **more: Any) -> Program:
    path = path or f"{name}/main.py"
    return Program(
        name=name, repository="pytorch/examples", path=path, step=step, args=args, **more
    )


def _tutorial(folder: str, step: str) -> Program:
    return Program(
        name=folder.rpartition("/")[2],
        repository="yunjey/pytorch-tutorial",
        path=f"tutorials/{folder}/main.py",
        step=step,
        data=((data.mnist, "tutorials/data"), (data.words, f"tutorials/{folder}/data/train.txt")),
    )


def _gan(name: str, step: str) -> Program:
    return Program(
        name=f"PyTorch-GAN {name}",
        repository="eriklindernoren/PyTorch-GAN",
        path=f"implementations/{name}/{name}.py",
        args="--n_epochs 1 --n_cpu 0",
        step=step,
        data=((data.mnist, "data/mnist"),),
    )


def _plain(name: str, step: str, folder: str = "nn") -> Program:
    path = f"{folder}/{name}.py"
    return Program(name=name, repository="jcjohnson/pytorch-examples", path=path, step=step)


_MNIST = ((data.mnist, "data"),)
_RL = "reinforcement_learning"

PROGRAMS = (
    _example("mnist", "train 64x1x28x28", "--epochs 1", data=_MNIST),
    _example("mnist_rnn", "train 64x1?x?28x28", "--epochs 1", data=_MNIST),
    _example("vae", "train 128x1x28x28", "--epochs 3", data=_MNIST),
    _example("siamese_network", "train 64x1x28x28", "--epochs 1", data=((data.mnist, "data"),)),
    _example(
        "mnist_forward_forward",
        "train",
        "--epochs 10 --train_size 300 --test_size 100",
        data=((data.large_mnist, "mnist_forward_forward/data"), (data.large_mnist, "data")),
    ),
    _example("reinforce", "train", "--log-interval 5", f"{_RL}/reinforce.py", ends=False),
    _example("actor_critic", "train", "--log-interval 5", f"{_RL}/actor_critic.py", ends=False),
    _example("regression", "train|step"),
    _example(
        "time_sequence_prediction",
        "train 97x999",
        "--steps 2",
        "time_sequence_prediction/train.py",
        data=((data.waves, "time_sequence_prediction/traindata.pt"),),
    ),
    _example(
        "super_resolution",
        "train 4x1x",
        "--upscale_factor 4 --batchSize 4 --nEpochs 3 --threads 0",
        data=((data.photographs, "super_resolution/dataset/BSDS300/images"),),
    ),
    _example(
        "word_language_model",
        "train 35x20",
        "--epochs 1",
        data=((data.wikitext, "word_language_model/data/wikitext-2"),),
    ),
    _example(
        "word_language_model Transformer",
        "train 35x20",
        "--epochs 1 --model Transformer --lr 5",
        "word_language_model/main.py",
        data=((data.wikitext, "word_language_model/data/wikitext-2"),),
    ),
    _example(
        "dcgan",
        "train",
        "--dataset fake --batchSize 16 --niter 1 --workers 0 --ngf 16 --ndf 16 --manualSeed 1",
        ends=False,
    ),
    _example("imagenet", "train 16x3x224x224", "--dummy -b 16 -j 0 --epochs 1", ends=False),
    _example("mnist_hogwild", "train 64x1x28x28", "--epochs 1", data=_MNIST),
    Program(
        name="nanoGPT",
        repository="karpathy/nanoGPT",
        path="train.py",
        args="config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=5"
        " --eval_interval=20 --log_interval=1 --block_size=64 --batch_size=12 --n_layer=4"
        " --n_head=4 --n_embd=128 --max_iters=40 --dropout=0.0 --always_save_checkpoint=False",
        step="train 12x64",
        data=((data.shakespeare, "data/shakespeare_char"),),
    ),
    Program(
        name="nanoGPT sample",
        repository="karpathy/nanoGPT",
        path="sample.py",
        args="--device=cpu --num_samples=3 --max_new_tokens=120 --start=ABC",
        step="forward|decode",
        data=((data.checkpoint, "out"), (data.shakespeare, "data/shakespeare_char")),
    ),
    Program(
        name="minGPT adder",
        repository="karpathy/minGPT",
        path="projects/adder/adder.py",
        args="--trainer.max_iters=60 --trainer.num_workers=0",
        step="train 64x",
        needs=(".",),
    ),
    Program(
        name="minGPT chargpt",
        repository="karpathy/minGPT",
        path="projects/chargpt/chargpt.py",
        args="--trainer.max_iters=40 --trainer.num_workers=0 --model.model_type=gpt-nano",
        step="train 64x128",
        needs=(".",),
        data=((data.words, "projects/chargpt/input.txt"),),
    ),
    *(
        Program(
            name=f"makemore {kind}",
            repository="karpathy/makemore",
            path="makemore.py",
            args=f"--max-steps 60 --num-workers 0 --type {kind}",
            step="train 32x",
            data=((data.names, "names.txt"),),
        )
        for kind in ("transformer", "rnn")
    ),
    *(
        Program(
            name=f"cleanrl {kind}",
            repository="vwxyzjn/cleanrl",
            path=f"cleanrl/{kind}.py",
            args=args,
            step=f"train {shape}",
            folder=".",
            needs=(".",),
        )
        for kind, args, shape in (
            ("ppo", "--total-timesteps 3000", "128x4"),
            ("dqn", "--total-timesteps 11000", "128x4"),
            ("c51", "--total-timesteps 11000", "128x4"),
        )
    ),
    Program(
        name="pygcn",
        repository="tkipf/pygcn",
        path="pygcn/train.py",
        args="--epochs 60",
        step="train 2708x1433",
        needs=(".",),
        data=((data.cora, "data/cora"),),
    ),
    Program(
        name="ignite mnist",
        repository="pytorch/ignite",
        path="examples/mnist/mnist.py",
        args="--epochs 1",
        step="train 64x1x28x28",
        data=((data.mnist, "examples/mnist"),),
    ),
    *(
        Program(
            name=f"Lightning {name}",
            repository="Lightning-AI/pytorch-lightning",
            path=f"examples/{path}",
            args=args,
            step=step,
            ends=ends,
            data=((data.mnist, "examples/Datasets"), (data.mnist, "Datasets")),
        )
        for name, path, args, step, ends in (
            (
                "fabric train_torch",
                "fabric/image_classifier/train_torch.py",
                "--epochs 1",
                "train 64x1x28x28",
                True,
            ),
            (
                "fabric train_fabric",
                "fabric/image_classifier/train_fabric.py",
                "--epochs 1",
                "train 64x1x28x28",
                True,
            ),
            ("bug_report", "pytorch/bug_report/bug_report_model.py", "", "train 2x32", True),
            (
                "rl train_torch",
                "fabric/reinforcement_learning/train_torch.py",
                "--num-envs 2 --total-timesteps 2048",
                "train",
                True,
            ),
        )
    ),
    Program(
        name="timm train",
        repository="huggingface/pytorch-image-models",
        path="train.py",
        args="pictures --model resnet18 --num-classes 6 --img-size 64 -b 8 --epochs 2 -j 1"
        " --device cpu",
        step="train 8x3x64x64",
        data=((data.split_images, "pictures"),),
    ),
    Program(
        name="transformers run_clm",
        repository="huggingface/transformers",
        path="examples/pytorch/language-modeling/run_clm.py",
        args="--config_name model --tokenizer_name model --train_file model/train.txt --do_train"
        " --output_dir out --block_size 64 --per_device_train_batch_size 4 --max_steps 40"
        " --report_to none --use_cpu --seed 1",
        step="train 4x64",
        data=((data.tokenizer, "examples/pytorch/language-modeling/model"),),
    ),
    Program(
        name="pyg gcn",
        repository="pyg-team/pytorch_geometric",
        path="examples/gcn.py",
        args="--epochs 40",
        step="train 2708x1433",
        data=((data.planetoid, "data/Planetoid/Cora/raw"),),
    ),
    *(
        Program(
            name=f"flax {name}",
            repository="google/flax",
            path=f"examples/nnx_toy_examples/{name}.py",
            step="train|cached|step",
        )
        for name in ("02_lifted_transforms", "03_train_state", "06_scan_over_layers")
    ),
    Program(
        name="vision classification",
        repository="pytorch/vision",
        path="references/classification/train.py",
        args="--data-path pictures --model resnet18 --device cpu -b 4 --epochs 1 -j 0",
        step="train 4x3x224x224",
        data=((data.split_images, "references/classification/pictures"),),
    ),
    Program(
        name="dlrm",
        repository="facebookresearch/dlrm",
        path="dlrm_s_pytorch.py",
        args="--mini-batch-size 64 --data-size 6400 --print-freq 10 --arch-mlp-bot 4-3-2",
        step="train 64x4",
    ),
    Program(
        name="x-transformers train_copy",
        repository="lucidrains/x-transformers",
        path="train_copy.py",
        step="train 32x32",
        ends=False,
    ),
    *(
        _tutorial(folder, step)
        for folder, step in (
            ("01-basics/logistic_regression", "train 100x784"),
            ("01-basics/feedforward_neural_network", "train 100x784"),
            ("02-intermediate/convolutional_neural_network", "train 100x1x28x28"),
            ("02-intermediate/recurrent_neural_network", "train 100x28x28"),
            ("03-advanced/variational_autoencoder", "train 128x784"),
        )
    ),
    *(_plain(name, "train 64x1000") for name in ("two_layer_net_optim", "dynamic_net")),
    *(_plain(name, "train 64x1000|train") for name in ("two_layer_net_nn", "two_layer_net_module")),
    _plain("two_layer_net_autograd", "train", "autograd"),
    _plain("two_layer_net_custom_function", "train", "autograd"),
    Program(
        name="TCN copy_memory",
        repository="locuslab/TCN",
        path="TCN/copy_memory/copymem_test.py",
        args="--cuda --epochs 1 --iters 40 --blank_len 200",
        step="train 32x",
    ),
    Program(
        name="TCN poly_music",
        repository="locuslab/TCN",
        path="TCN/poly_music/music_test.py",
        args="--cuda --epochs 1",
        step="train 1x",
        ends=False,
    ),
    _gan("gan", "train 64x100|train 64x1x28x28"),
    _gan("wgan_gp", "train 64x100|train 64x1x28x28"),
    Program(
        name="pyGAT sparse",
        repository="Diego999/pyGAT",
        path="train.py",
        args="--no-cuda --sparse",
        step="train 1500x200",
        data=((data.smaller_cora, "data/cora"),),
        ends=False,
    ),
    *(
        Program(
            name=f"nlp-tutorial {name}",
            repository="graykode/nlp-tutorial",
            path=f"{folder}/{name}.py",
            step=step,
            ends=ends,
        )
        for folder, name, step, ends in (
            ("2-1.TextCNN", "TextCNN", "train 6x3", False),
            ("3-2.TextLSTM", "TextLSTM", "train 10x3x26", True),
            ("4-2.Seq2Seq(Attention)", "Seq2Seq(Attention)", "train 1x5", False),
            ("5-2.BERT", "BERT", "train 6x30", False),
        )
    ),
    Program(
        name="UNet",
        repository="milesial/Pytorch-UNet",
        path="train.py",
        args="--epochs 1 --batch-size 1 --scale 0.1",
        step="train 1x3x",
        ends=False,
        data=((data.masked_photographs, "data"),),
    ),
    Program(
        name="torchdiffeq ode_demo",
        repository="rtqichen/torchdiffeq",
        path="examples/ode_demo.py",
        args="--niters 60",
        step="train",
        needs=(".",),
    ),
    Program(
        name="torchdiffeq odenet_mnist",
        repository="rtqichen/torchdiffeq",
        path="examples/odenet_mnist.py",
        args="--nepochs 1 --batch_size 16 --test_batch_size 64",
        step="train 16x1x28x28",
        needs=(".",),
        ends=False,
        data=((data.mnist, "examples/.data/mnist"),),
    ),
    *(
        Program(
            name=f"PyTorch-Tutorial {name}",
            repository="MorvanZhou/PyTorch-Tutorial",
            path=f"tutorial-contents/{name}.py",
            step=step,
            ends=ends,
        )
        for name, step, ends in (
            ("306_optimizer", "train 32x1", True),
            ("403_RNN_regressor", "train 1x10x1", True),
            ("406_GAN", "train 64x5", False),
        )
    ),
    Program(
        name="llama2.c",
        repository="karpathy/llama2.c",
        path="train.py",
        args="--device=cpu --compile=False --vocab_source=custom --vocab_size=512 --dim=64"
        " --n_layers=3 --n_heads=4 --n_kv_heads=4 --batch_size=8 --max_seq_len=64 --max_iters=60"
        " --eval_interval=50 --eval_iters=5",
        step="train 8x64",
        data=((data.stories, "data/tok512"),),
    ),
    Program(
        name="Lightning autoencoder",
        repository="Lightning-AI/pytorch-lightning",
        path="examples/pytorch/basics/autoencoder.py",
        args="--trainer.max_epochs 1 --trainer.accelerator cpu --trainer.limit_train_batches 200"
        " --trainer.limit_val_batches 20 --trainer.limit_test_batches 20"
        " --trainer.limit_predict_batches 20",
        step="train 32x784",
        data=(
            (data.large_mnist, "examples/Datasets"),
            (data.mnist, "examples/pytorch/basics/data"),
        ),
    ),
    Program(
        name="Lightning transformer",
        repository="Lightning-AI/pytorch-lightning",
        path="examples/pytorch/basics/transformer.py",
        step="train 20x35",
        ends=False,
        data=((data.lightning_words, "examples/pytorch/basics/data"),),
    ),
    *METHODS,
)
