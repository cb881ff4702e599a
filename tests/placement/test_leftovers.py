"""What a killed engine left half done is cleared away by the next one."""

import time

from localkv.files import Files
from tests.placement.lives import Life


def test_leftovers_of_a_killed_engine_go(tmp_path):
    """Temporary files and files without a row are deleted at the next start; records with a row stay."""
    root = tmp_path / "store"
    life = Life(root)
    head = life.admit(list(range(40)))
    assert life.end()
    some = next(iter(root.rglob("*.safetensors")))
    (some.parent / "a.part").write_bytes(b"x")
    (some.parent / ("0" * 40 + ".safetensors")).write_bytes(b"x")
    life = Life(root)
    assert life.restore(list(range(40)), head)[0] == 40
    assert life.end()
    assert len([path for path in root.rglob("*") if path.is_file() and path.name[:9] != "catalogue"]) == 3


def test_the_first_save_does_not_add_to_what_a_killed_engine_left(tmp_path):
    """Files without a row take space that no row tells of: they go before anything new is written, so the budget holds at every save."""
    root = tmp_path / "store"
    life = Life(root)
    life.admit(list(range(16)))
    assert life.end()
    some = next(iter(root.rglob("*.safetensors")))
    for i in range(5):
        (some.parent / (f"{i}" * 40 + ".safetensors")).write_bytes(bytes(9000))
    at_saves = []

    class Watching(Files):
        def write_temp(self, path, parts):
            at_saves.append(len(list(root.rglob("*" + "0" * 20 + ".safetensors"))))
            at_saves.append(len(list(root.rglob("*" + "4" * 20 + ".safetensors"))))
            return super().write_temp(path, parts)

    life = Life(root, files=Watching())
    life.admit(list(range(100, 132)))
    until = time.monotonic() + 10
    while not at_saves and time.monotonic() < until:
        life.keeper.counts()
    assert set(at_saves) == {0}
    assert life.end()
