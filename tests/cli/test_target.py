import click
import pytest

from boundby.cli.target import TargetCommand, split
from boundby.errors import BoundbyError

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
def test_boundbys_options_end_where_the_script_begins(given: str, own: str, target: str) -> None:
    assert split(given.split(), VALUED) == (own.split(), target.split())


def test_an_option_behind_the_script_is_pointed_at_when_it_fails() -> None:
    @click.command(cls=TargetCommand, name="prove")
    @click.option("--budget")
    @click.argument("target", nargs=-1, type=click.UNPROCESSED)
    def command(budget: str | None, target: tuple[str, ...]) -> None:
        raise BoundbyError("no step was found", exit_code=7)

    def failure(*words: str) -> str:
        with pytest.raises(BoundbyError) as caught:
            command.main([*words], standalone_mode=False)
        assert caught.value.exit_code == 7
        return str(caught.value)

    assert failure("--budget", "2m", "train.py", "--lr", "1") == "no step was found"
    assert "(--budget=2m was given to the script" in failure("train.py", "--budget=2m")
