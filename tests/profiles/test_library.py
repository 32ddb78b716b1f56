from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import ProfileError, UsageError
from ddtree_ops_cli.profiles.locate import Library, kind_named, user_directory

HOST = "description: {0}\nruntime: docker\naddress: {0}.example\nmodel: lab-pair\n"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own profiles; the current directory is tmp_path/work."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DDTREE_PROFILES", raising=False)
    return tmp_path / "config" / "ddtree" / "profiles"


def write(directory: Path, name: str, text: str) -> Path:
    file = directory / "hosts" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_the_search_path_goes_from_the_option_to_the_bundled(own: Path, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    for place in (extra, Path("profiles"), own):
        write(place, "box", HOST.format("box"))

    library = Library.default(extra)

    directories = [extra, Path.cwd() / "profiles", own, bundled("profiles")]
    assert list(library.directories) == directories
    files = [entry.file for entry in library.list("hosts") if entry.name == "box"]
    assert files == [directory / "hosts" / "box.yaml" for directory in directories[:3]]
    hidden = [entry.hidden_by for entry in library.list("hosts") if entry.name == "box"]
    assert hidden == [None, files[0], files[0]]
    assert library.host("box").file == files[0]


def test_the_environment_names_a_directory_like_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "extra", "box", HOST.format("box"))
    monkeypatch.setenv("DDTREE_PROFILES", str(tmp_path / "extra"))

    assert Library.default().host("box").file == tmp_path / "extra" / "hosts" / "box.yaml"


def test_a_directory_met_twice_counts_once(own: Path, tmp_path: Path) -> None:
    write(own, "box", HOST.format("box"))
    link = tmp_path / "link"
    link.symlink_to(own)

    for extra in (own, link):
        files = [entry.file for entry in Library.default(extra).list("hosts")]
        assert [file for file in files if file.stem == "box"] == [extra / "hosts" / "box.yaml"]


def test_in_a_checkout_the_users_own_profiles_come_before_the_projects(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that the package was installed from, so that its profiles are copies of the bundled.
    (tmp_path / "checkout/ddtree_ops_cli").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "checkout")
    write(Path("profiles"), "ct200", HOST.format("theirs"))
    file = write(own, "ct200", HOST.format("ct200"))

    assert Library.default().host("ct200").file == file


@pytest.mark.parametrize("what", ["missing", "empty", "file"])
def test_an_option_that_leads_to_no_profiles_is_refused(what: str, tmp_path: Path) -> None:
    place = tmp_path / what
    if what == "empty":
        place.mkdir()
    if what == "file":
        place.write_text("")

    with pytest.raises(UsageError) as refused:
        Library.default(place)

    assert str(place) in str(refused.value)


def test_an_unknown_name_is_refused_with_the_near_or_the_known_ones() -> None:
    library = Library.default()

    with pytest.raises(UsageError, match=r"no host 'lap'; did you mean lab$"):
        library.host("lap")
    with pytest.raises(UsageError, match=r"no service 'x'; known: ddtree, dflash-linear, plain$"):
        library.service("x")
    with pytest.raises(UsageError, match=r"no model '\.\./models/lab-pair'"):
        library.model("../models/lab-pair")


def test_a_template_says_which_file_to_write_and_how(own: Path) -> None:
    with pytest.raises(UsageError) as refused:
        Library.default().host("ct200")

    assert refused.value.exit_code == 2
    assert str(own / "hosts" / "ct200.yaml") in str(refused.value)
    assert "ddtree hosts add ct200 --address A --user U" in str(refused.value)


def test_a_sweep_visits_the_lab_and_own_hosts_but_no_template(own: Path) -> None:
    write(own, "box", HOST.format("box"))
    write(own, "broken", "runtime: docker\n")

    targets = Library.default().targets()

    assert sorted(targets) == ["box", "broken", "lab"]
    broken = targets["broken"]
    assert isinstance(broken, ProfileError)
    assert "broken.yaml:1:1" in str(broken)


def test_a_host_of_the_users_own_hides_the_template_of_its_name(own: Path) -> None:
    write(own, "ct200", HOST.format("ct200"))

    assert sorted(Library.default().targets()) == ["ct200", "lab"]


def test_only_files_with_a_profiles_name_are_profiles(own: Path) -> None:
    write(own, "box", HOST.format("box"))
    for stray in (".box.yaml", "Box.yaml", "box.yml", "box.yaml~", "README.md", "-x.yaml"):
        (own / "hosts" / stray).write_text("")

    assert Library.default().names("hosts") == ["box", "ct200", "lab"]


def test_a_name_without_a_kind_must_be_unambiguous(own: Path) -> None:
    write(own, "ddtree", HOST.format("ddtree"))
    library = Library.default()

    assert library.kind_of("plain") == "services"
    with pytest.raises(UsageError, match="'ddtree' is in hosts and in services"):
        library.kind_of("ddtree")
    with pytest.raises(UsageError, match="no profile 'plane'; did you mean plain"):
        library.kind_of("plane")


def test_a_kind_may_be_singular() -> None:
    assert kind_named("host") == kind_named("hosts") == "hosts"
    with pytest.raises(UsageError, match="no kind of profile 'modles'; did you mean models"):
        kind_named("modles")


def test_an_unreadable_file_is_one_line(own: Path) -> None:
    (own / "hosts" / "folder.yaml").mkdir(parents=True)
    (own / "hosts" / "gone.yaml").symlink_to("nowhere")
    library = Library.default()

    with pytest.raises(ProfileError, match=r"folder\.yaml:1:1: is a directory$"):
        library.host("folder")
    with pytest.raises(ProfileError, match=r"gone\.yaml:1:1: no such file$"):
        library.host("gone")


def test_the_users_own_profiles_are_under_xdg(own: Path) -> None:
    assert user_directory() == own
