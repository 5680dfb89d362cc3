"""The names of `boundby.model` are loaded lazily; every one of them exists."""

from boundby import model


def test_every_exported_name_is_loaded_from_its_module() -> None:
    assert sorted(model._MODULE_OF) == sorted(model.__all__)
    for name in model.__all__:
        assert getattr(model, name) is not None
