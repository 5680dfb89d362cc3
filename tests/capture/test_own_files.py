"""Which files are boundby's, a compiler's, or the user's."""

import pytest

from boundby.capture.own_files import is_generated_file, is_own_file
from boundby.prove.site_recorder import is_user_file

HASHED = "c5q4hikzqx5p7ng2fwgvbkvvxz2hm7zlhtwxjdbbmzrovkzy3oqs.py"


@pytest.mark.parametrize(
    "path", [f"/tmp/x/compiled/5q/{HASHED}", f"/tmp/torchinductor_me/5q/{HASHED}"]
)
def test_generated_code_is_not_user_code(path: str) -> None:
    assert is_generated_file(path)
    assert not is_user_file(path)


def test_script_is_user_code() -> None:
    assert is_user_file("/home/me/project/train.py")


@pytest.mark.parametrize("path", ["/tmp/a\0b.py", "/" + "x" * 5000])
def test_names_that_no_file_can_have_are_not_own_files(path: str) -> None:
    assert not is_own_file(path)
