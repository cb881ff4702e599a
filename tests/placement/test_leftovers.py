"""What a killed engine left half done is cleared away by the next one."""

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
