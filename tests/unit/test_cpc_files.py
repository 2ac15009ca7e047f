"""In which forms the raw files of CPC are found: folders, single files, zips as downloaded."""

from __future__ import annotations

import shutil
import zipfile

import pytest
from persona_agents.tasks.cpc import build

from persona_agents.errors import PersonaAgentsError
from tests.unit.corpora import numbered, teacher, variant, write, write_zip

SPLITS = ("train", "valid", "test")


def numbers(place, split) -> list[str]:
    """Which dialogues of `numbered` make up a split."""
    return [sample.query for sample in build.load(str(place), split)]


@pytest.fixture
def plain(tmp_path):
    folder = tmp_path / "plain"
    write(folder, numbered(200), "Persona_train.json")
    write(folder, numbered(5, 1000), "Persona_dev.json")
    return folder


@pytest.mark.parametrize(
    ("train", "dev"),
    [
        ("Dialog_train.zip", "Dialog_dev.zip"),
        ("dialog-train.ZIP", "DIALOG_DEV.zip"),
        ("Persona_train.zip", "Persona_dev.zip"),
    ],
)
@pytest.mark.parametrize("inside", ["Persona_", "Dialog__Persona_"])
def test_zips_as_downloaded(tmp_path, plain, train, dev, inside):
    write_zip(tmp_path / "zips" / train, **{f"{inside}train": numbered(200), "weibo": ["{}"]})
    write_zip(tmp_path / "zips" / dev, **{f"{inside}dev": numbered(5, 1000)})
    for split in SPLITS:
        assert numbers(tmp_path / "zips", split) == numbers(plain, split)


def test_one_zip_of_everything(tmp_path, plain):
    path = write_zip(
        tmp_path / "cpc.zip", Persona_train=numbered(200), Persona_dev=numbered(5, 1000)
    )
    for split in SPLITS:
        assert numbers(path, split) == numbers(plain, split)


def test_what_macos_adds_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "Dialog_dev.zip", "w") as archive:
        archive.writestr("__MACOSX/Persona_dev.json", "rubbish")
        archive.writestr("._Persona_dev.json", "rubbish")
    write_zip(tmp_path / "Dialog_dev.zip", "a", Persona_dev=numbered(3))
    assert len(numbers(tmp_path, "valid")) == 3


def test_unpacked_into_a_folder_of_its_own(tmp_path, plain):
    shutil.copytree(plain, tmp_path / "data" / "Dialog_train")
    for split in SPLITS:
        assert numbers(tmp_path / "data", split) == numbers(plain, split)


def test_a_plain_file_is_preferred_to_a_zip(tmp_path):
    write(tmp_path, numbered(2))
    write_zip(tmp_path / "Dialog_dev.zip", Persona_dev=numbered(9))
    assert len(numbers(tmp_path, "valid")) == 2


@pytest.mark.parametrize("name", ["Persona_sample.txt", "mine.json"])
def test_a_single_file_is_cut_into_all_splits(tmp_path, name):
    write(tmp_path, numbered(1000), name)
    parts = [set(numbers(tmp_path / name, split)) for split in SPLITS]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 1000
    assert 25 < len(parts[1]) < 80 and 25 < len(parts[2]) < 80, "about 5 % each"
    if name == "Persona_sample.txt":  # its folder will do
        assert [set(numbers(tmp_path, split)) for split in SPLITS] == parts


def test_a_zip_of_one_unknown_file_is_a_single_file(tmp_path):
    path = write_zip(tmp_path / "x.zip", mine=numbered(300))
    assert sum(len(numbers(path, split)) for split in SPLITS) == 300


def test_a_single_file_with_a_known_name_is_that_split(tmp_path, plain):
    assert numbers(plain / "Persona_dev.json", "valid") == numbers(plain, "valid")
    assert numbers(plain / "Persona_train.json", "test") == numbers(plain, "test")
    with pytest.raises(PersonaAgentsError, match=r"Persona_dev.json holds no Persona_train.json"):
        numbers(plain / "Persona_dev.json", "train")


def test_dialogues_of_dev_are_left_out_of_training(plain):
    before = {split: numbers(plain, split) for split in SPLITS}
    repeated = numbered(1, 7)
    assert "第 7 个" in before["train"]
    write(plain, numbered(5, 1000) + repeated, "Persona_dev.json")
    assert numbers(plain, "valid") == [*before["valid"], "第 7 个"]
    assert numbers(plain, "train") == [query for query in before["train"] if query != "第 7 个"]
    assert numbers(plain, "test") == before["test"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("<html>please log in</html>"), "is no complete zip file"),
        (lambda path: path.write_bytes(_zipped(path)[:-40]), "is no complete zip file"),
        (lambda path: path.write_bytes(_broken(path)), r"Persona_dev.json is damaged \("),
        (lambda path: path.write_bytes(_locked(path)), "cannot be unpacked .*password"),
        (lambda path: write_zip(path, weibo=["{}"], duconv=["{}"]), "holds no Persona_dev.json"),
    ],
    ids=["web page", "cut off", "wrong checksum", "password", "other content"],
)
def test_bad_zips(tmp_path, make, message):
    make(tmp_path / "Dialog_dev.zip")
    for place in (tmp_path, tmp_path / "Dialog_dev.zip"):
        with pytest.raises(PersonaAgentsError, match=message) as caught:
            numbers(place, "valid")
        assert str(tmp_path) in str(caught.value)


def _zipped(path) -> bytes:
    write_zip(path, Persona_dev=numbered(50))
    return path.read_bytes()


def _broken(path) -> bytes:
    data = bytearray(_zipped(path))
    data[data.index(b"PK\1\2") + 16] ^= 0xFF  # the member's checksum
    return bytes(data)


def _locked(path) -> bytes:
    # The flag that says that a password is needed, in the member's and in the directory's record.
    data = bytearray(_zipped(path))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


def test_through_parlai(tmp_path):
    write_zip(tmp_path / "CPC" / "Dialog_dev.zip", Persona_dev=[variant()])
    assert teacher(datapath=str(tmp_path)).num_examples() == 2
    place = str(tmp_path / "CPC" / "Dialog_dev.zip")
    assert teacher(cpc_path=place).num_examples() == 2
