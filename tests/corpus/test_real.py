import gzip
import hashlib
import io
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from course_utils.corpus import real
from course_utils.corpus.pairs import Corpus, Pair
from course_utils.corpus.real import emoji_names, from_file, multi30k, tatoeba
from course_utils.corpus.text import detokenise, tokenise

NOBODY = "http://127.0.0.1:9/"  # the discard port: refused at once


def pair(english: str, french: str) -> Pair:
    return Pair(tuple(english.split()), tuple(french.split()))


def zipped(**members: str) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return memory.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("COURSE_CACHE", str(folder))
    return folder


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(real, "TATOEBA_ADDRESSES", (NOBODY + "fra-eng.zip",))
    monkeypatch.setattr(real, "MULTI30K_ADDRESSES", (NOBODY,))


@pytest.fixture
def website(tmp_path, monkeypatch):
    """A folder served on this machine, in place of the known addresses."""
    folder = tmp_path / "website"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setattr(real, "TATOEBA_ADDRESSES", (address + "missing.zip", address + "fra-eng.zip"))
    monkeypatch.setattr(real, "MULTI30K_ADDRESSES", (address,))
    yield folder
    server.shutdown()
    server.server_close()


def write_multi30k(folder: Path) -> dict[str, str]:
    """A small Multi30k; returns the checksums of its files."""
    folder.mkdir(exist_ok=True)
    texts = {
        "train.en": "A dog.\nA man.\nA cat.\n",
        "train.fr": "Un chien.\nUn homme.\nUn chat.\n",
        "val.en": "A man.\n",
        "val.fr": "Un homme.\n",
        "test_2016_flickr.en": "A bird.\nA fish.\n",
        "test_2016_flickr.fr": "Un oiseau.\nUn poisson.\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def all_pairs(corpus: Corpus) -> list[Pair]:
    return [*corpus.train, *corpus.valid, *corpus.test]


def check_disjoint(corpus: Corpus) -> None:
    train, valid, test = ({p.source for p in part} for part in (corpus.train, corpus.valid, corpus.test))
    assert not (train & valid or train & test or valid & test)


# Emoji names


def test_emoji_names_are_real_disjoint_and_clean(capsys):
    corpus = emoji_names()
    pairs = all_pairs(corpus)
    assert 1900 <= len(pairs) <= 2100
    assert (len(corpus.valid), len(corpus.test)) == (100, 200)
    assert pair("blue heart", "cœur bleu") in pairs
    assert pair("house with garden", "maison avec jardin") in pairs
    assert pair("black small square", "petit carré noir") in pairs
    assert pair("dog face", "tête de chien") in pairs
    check_disjoint(corpus)
    for english, french, *_ in pairs:
        assert english and french
        text = " ".join([*english, *french])
        assert "_" not in text and not text.startswith(":") and not text.endswith(":")
        assert "skin tone" not in text and "peau" not in french
        assert text == text.lower()
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "emoji names" in line and "Unicode" in line and f"{len(corpus.train):,} + 100 + 200 pairs" in line


def test_emoji_names_depend_on_the_seed_alone():
    assert emoji_names(seed=1) == emoji_names(seed=1)
    assert emoji_names(seed=1).test != emoji_names(seed=2).test
    assert sorted(all_pairs(emoji_names(seed=1))) == sorted(all_pairs(emoji_names(valid=7, test=9, seed=2)))


@pytest.mark.parametrize("side", [0, 1])
def test_emoji_names_survive_detokenisation(side):
    for names in all_pairs(emoji_names()):
        language = ("en", "fr")[side]
        assert tuple(tokenise(detokenise(names[side], language), language)) == names[side]


# Files of one's own


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_tab_separated_pairs(tmp_path, newline, start, end, packed):
    text = start + newline.join(["Go.\tVa !\tCC-BY 1", "", "L'été\tL’hiver"]) + end.replace("\n", newline)
    data = text.encode()
    path = tmp_path / "pairs.tsv"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert from_file(path) == [pair("go .", "va !"), pair("l'été", "l' hiver")]
    assert from_file(str(path), languages=("fr", "en"))[1] == pair("l' été", "l'hiver")


def test_other_columns(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("1\tGo.\tVa.\n2\tStop.\tArrête.\n", encoding="utf-8")
    assert from_file(path, columns=(1, 2)) == [pair("go .", "va ."), pair("stop .", "arrête .")]
    assert from_file(path, columns=(2, 1), languages=("fr", "en"))[0] == pair("va .", "go .")
    with pytest.raises(ValueError, match=r"columns=\(0, -1\) must not be negative"):
        from_file(path, columns=(0, -1))


def test_two_aligned_files(tmp_path):
    # A line separator of Unicode inside a sentence is no end of line.
    (tmp_path / "a.en.gz").write_bytes(gzip.compress("One\u2028more.\n\nTwo\x85.\n".encode()))
    (tmp_path / "a.fr.zip").write_bytes(zipped(**{"a.fr": "Un de plus.\n\nDeux.\n"}))
    expected = [pair("one more .", "un de plus ."), pair("two .", "deux .")]
    assert from_file(tmp_path / "a.en.gz", tmp_path / "a.fr.zip") == expected


def test_the_one_text_of_an_archive_is_found(tmp_path):
    path = tmp_path / "fra-eng.zip"
    notes = {
        "fra-eng/_about.txt": "notes",
        "__MACOSX/fra-eng/._fra.txt": "x",
        "fra-eng/.DS_Store": "x",
        "fra-eng/": "",
    }
    path.write_bytes(zipped(**notes, **{"fra-eng/fra.txt": "Go.\tVa !\n"}))
    assert from_file(path) == [pair("go .", "va !")]


def fails(error: type[Exception], *parts: str, **arguments):
    """from_file raises, and its message holds all parts."""
    with pytest.raises(error) as caught:
        from_file(**arguments)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("Go.\tVa !\nStop. Arrête.\n", ["line 2", "1 column", "columns=(0, 1)", "Stop. Arrête.", "tab"]),
        ("Go.\tVa !\n\nStop.\t \n", ["line 3", "target sentence is empty", "Stop.", "remove the line"]),
        ("\tVa !\n", ["line 1", "source sentence is empty", "Va !"]),
        ("", ["is empty"]),
        ("\ufeff\n \n", ["is empty"]),
        ("Go.\tVa !\nShe.\tÉlève\n".encode("latin-1"), ["line 2", "0xc9", "Élève", "UTF-8"]),
        ("Go.\tVa !\n".encode("utf-16"), ["UTF-16", "save it again"]),
        (gzip.compress(b"Go.\tVa !\n" * 99, mtime=0)[:-9], ["damaged archive", "get the file again"]),
        (b"PK\x03\x04 nothing", ["damaged archive"]),
        (zipped(a="Go.\tVa !", b="Go.\tVa !"), ["one text file", "found a, b", "unpack"]),
        (zipped(_about="x"), ["one text file", "found none"]),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path, content, parts):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    fails(ValueError, "pairs.tsv", *parts, path=path)


def test_errors_in_an_archive_name_its_member(tmp_path):
    path = tmp_path / "pairs.zip"
    path.write_bytes(zipped(**{"folder/fra.txt": "Go. Va !\n"}))
    fails(ValueError, "pairs.zip/folder/fra.txt, line 1", path=path)


def test_malformed_aligned_files(tmp_path):
    english, french = tmp_path / "a.en", tmp_path / "a.fr"
    english.write_text("One.\nTwo.\nThree.\n", encoding="utf-8")
    french.write_text("Un.\nDeux.\n", encoding="utf-8")
    fails(ValueError, "a.en has 3 lines", "a.fr 2", path=english, target_path=french)
    french.write_text("Un.\n\nTrois.\n", encoding="utf-8")
    fails(ValueError, "a.en", "a.fr, line 2", "target sentence is empty", path=english, target_path=french)


def test_missing_files(tmp_path):
    fails(FileNotFoundError, "there is no file", "nowhere.tsv", path=tmp_path / "nowhere.tsv")
    fails(IsADirectoryError, "is a folder", path=tmp_path)


# Tatoeba


def check_tatoeba(corpus: Corpus) -> None:
    assert corpus.name == "tatoeba"
    assert corpus.languages == ("en", "fr")
    assert "CC BY 2.0 FR" in corpus.licence and "tatoeba.org" in corpus.attribution
    assert sorted(all_pairs(corpus)) == sorted(TATOEBA_PAIRS)
    check_disjoint(corpus)


# Three translations of "Go.", one of them given twice but for the case.
TATOEBA = """\
Go.	Va !	CC-BY 1
Go.	Marche.
Go.	Bouge !
GO.	Va !
Hi.	Salut !
Run!	Cours !
Wow!	Ça alors !
"""
TATOEBA_PAIRS = [
    pair("go .", "va !"),
    pair("go .", "marche ."),
    pair("go .", "bouge !"),
    pair("hi .", "salut !"),
    pair("run !", "cours !"),
    pair("wow !", "ça alors !"),
]


@pytest.mark.parametrize("name", ["fra.txt", "fra-eng.zip", "fra-eng/fra.txt", "other.zip"])
@pytest.mark.parametrize("by_folder", [False, True])
def test_tatoeba_from_a_local_file_or_folder(tmp_path, cache, offline, capsys, name, by_folder):
    path = tmp_path / "here" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(zipped(**{"fra.txt": TATOEBA}) if name.endswith("zip") else TATOEBA.encode())
    given = tmp_path / "here" if by_folder else path
    if by_folder and name == "other.zip":
        with pytest.raises(FileNotFoundError, match=r"holds none of fra\.txt"):
            tatoeba(given, valid=1, test=1)
        return
    corpus = tatoeba(given, valid=1, test=1)
    check_tatoeba(corpus)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "CC BY 2.0 FR" in out and "tatoeba.org" in out
    assert not cache.exists(), "a local file needs no cache"


def test_tatoeba_splits_by_english_sentence(tmp_path):
    path = tmp_path / "fra.txt"
    path.write_text(TATOEBA, encoding="utf-8")
    for seed in range(8):
        corpus = tatoeba(path, valid=1, test=1, seed=seed)
        check_tatoeba(corpus)
        assert len({p.source for p in corpus.test}) == len({p.source for p in corpus.valid}) == 1
    assert tatoeba(path, valid=1, test=1, seed=3) == tatoeba(path, valid=1, test=1, seed=3)


def test_long_pairs_are_left_out_on_request(tmp_path):
    path = tmp_path / "fra.txt"
    path.write_text(TATOEBA, encoding="utf-8")
    short = all_pairs(tatoeba(path, valid=1, test=1, max_length=2))
    assert sorted(short) == sorted(p for p in TATOEBA_PAIRS if p.target[0] != "ça")


def test_tatoeba_is_downloaded_once_then_read_from_the_cache(website, cache, monkeypatch):
    (website / "fra-eng.zip").write_bytes(zipped(**{"fra-eng/fra.txt": TATOEBA, "__MACOSX/._fra.txt": "x"}))
    check_tatoeba(tatoeba(valid=1, test=1))
    assert [path.name for path in (cache / "tatoeba").iterdir()] == ["fra-eng.zip"]
    monkeypatch.setattr(real, "TATOEBA_ADDRESSES", ())
    check_tatoeba(tatoeba(valid=1, test=1))


def test_a_missing_local_file_is_an_error_not_a_fallback(tmp_path, offline):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        tatoeba(tmp_path / "fra-eng.zip")
    with pytest.raises(FileNotFoundError, match=r"holds neither train\.en\.gz nor train\.en"):
        multi30k(tmp_path)


@pytest.mark.parametrize(("load", "title"), [(tatoeba, "Tatoeba"), (multi30k, "Multi30k")])
def test_with_no_network_the_grammar_stands_in_and_says_so(monkeypatch, cache, offline, capsys, load, title):
    monkeypatch.setattr(real, "_FALLBACK_PAIRS", 50)
    corpus = load(max_length=12)
    assert len(corpus.train) == 50
    assert max(len(p.source) for p in corpus.train) <= 12
    assert any(p.links for p in corpus.train), "the grammar knows its alignments"
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert title in out and "Using the embedded grammar corpus instead" in out and NOBODY in out


@pytest.mark.parametrize(("wished", "longest"), [(2, 5), (100, 60)])
def test_the_grammar_stands_in_for_lengths_that_it_does_not_write(
    monkeypatch, cache, offline, wished, longest
):
    monkeypatch.setattr(real, "_FALLBACK_PAIRS", 50)
    assert max(len(pair.source) for pair in tatoeba(max_length=wished).train) <= longest


# Multi30k


def check_multi30k(corpus: Corpus) -> None:
    assert corpus.train == [pair("a dog .", "un chien ."), pair("a cat .", "un chat .")], (
        "a man . is held out"
    )
    assert corpus.valid == [pair("a man .", "un homme .")]
    assert corpus.test == [pair("a bird .", "un oiseau ."), pair("a fish .", "un poisson .")]
    check_disjoint(corpus)


def test_multi30k_keeps_the_official_sets(tmp_path, cache, offline, capsys):
    write_multi30k(tmp_path / "here")
    check_multi30k(multi30k(tmp_path / "here"))
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "2 + 1 + 2 pairs" in out and "https://github.com/multi30k/dataset" in out
    for path in list((tmp_path / "here").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    check_multi30k(multi30k(tmp_path / "here"))


def test_multi30k_is_downloaded_and_checked(website, cache, monkeypatch):
    monkeypatch.setattr(real, "MULTI30K_FILES", write_multi30k(website))
    check_multi30k(multi30k())
    assert sorted(path.name for path in (cache / "multi30k").iterdir()) == sorted(real.MULTI30K_FILES)
    monkeypatch.setattr(real, "MULTI30K_ADDRESSES", ())
    check_multi30k(multi30k())


def test_files_that_are_not_multi30k_are_refused(website, cache, monkeypatch, capsys):
    """The real checksums don't fit these files."""
    monkeypatch.setattr(real, "_FALLBACK_PAIRS", 50)
    write_multi30k(website)
    assert multi30k(max_length=12).name != "multi30k"
    assert "not the expected one" in capsys.readouterr().out
    assert list((cache / "multi30k").iterdir()) == []
