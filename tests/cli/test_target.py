import pytest

from boundby.cli.target import split

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
