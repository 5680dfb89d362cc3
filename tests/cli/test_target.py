import click
import pytest

from boundby.cli.target import TargetCommand, split

VALUED = {"--steps", "--json"}


@pytest.mark.parametrize(
    ("given", "own", "target"),
    [
        ("train.py --steps 5", "", "train.py --steps 5"),
        ("--steps 5 train.py --lr 3e-4", "--steps 5", "train.py --lr 3e-4"),
        ("--json - train.py -", "--json -", "train.py -"),
        ("--quiet train.py --quiet -m x", "--quiet", "train.py --quiet -m x"),
        ("-m pkg.train --steps 5", "", "-m pkg.train --steps 5"),
        ("--steps=5 -m pkg.train -- x", "--steps=5", "-m pkg.train -- x"),
        ("-mpkg.train --help", "", "-m pkg.train --help"),
        ("--quiet -- --odd.py --x", "--quiet", "--odd.py --x"),
        ("--quiet", "--quiet", ""),
    ],
)
def test_options_of_boundby_end_at_the_script(given: str, own: str, target: str) -> None:
    assert split(given.split(), VALUED) == (own.split(), target.split())


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("--budget 2m train.py --lr 1", ""),
        ("train.py --budget=2m --lr 1", "boundby: --budget after train.py is passed to it;"),
        (
            "train.py --budget 2m --quiet",
            "boundby: --budget, --quiet after train.py are passed to it;",
        ),
        ("-m pkg.train --budget 2m", "boundby: --budget after pkg.train is passed to it;"),
        ("--quiet train.py --budget 2m", ""),
    ],
)
def test_option_after_the_script_is_passed_on_with_a_hint(
    words: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command(cls=TargetCommand, name="prove")
    @click.option("--budget")
    @click.option("--quiet", is_flag=True)
    @click.argument("target", nargs=-1, type=click.UNPROCESSED)
    def command(budget: str | None, quiet: bool, target: tuple[str, ...]) -> None:
        assert quiet or budget or "--budget" in " ".join(target)

    command.main(words.split(), standalone_mode=False)
    said = capsys.readouterr().err
    assert said.startswith(note) if note else said == ""
