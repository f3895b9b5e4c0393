"""Real text: names of emoji (always at hand), Tatoeba and Multi30k (downloaded), and files of your own."""

import codecs
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import emoji

from course_utils.corpus import grammar
from course_utils.corpus.fetch import DownloadError, cache_folder, fetch
from course_utils.corpus.pairs import Corpus, Pair, split
from course_utils.corpus.text import shortened, tokenise

TATOEBA_ADDRESSES = (
    "https://storage.googleapis.com/download.tensorflow.org/data/fra-eng.zip",
    "https://www.manythings.org/anki/fra-eng.zip",
)
MULTI30K_ADDRESSES = ("https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",)
MULTI30K_FILES = {  # name: SHA-256
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}

_FALLBACK_PAIRS = 20_000
_FALLBACK_LENGTH = 5  # of fewer words, the grammar has not so many sentences
_SKIN_TONES = frozenset("\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")


def emoji_names(*, valid: int = 100, test: int = 200, seed: int = 0) -> Corpus:
    """English and French names of about 1,900 emoji: "blue heart" / "cœur bleu". Needs no network.

    Real and written by people, one to eleven words each; names that differ by skin tone alone are left
    out. A flag is named after its country in English, where French says "drapeau" too. The set grows
    with the emoji package. No two pairs share a name, so the sets are disjoint.
    """
    emoji.config.load_language(["en", "fr"])
    full = emoji.STATUS["fully_qualified"]
    names = [
        (data["en"], data["fr"])
        for symbol, data in emoji.EMOJI_DATA.items()
        if data["status"] <= full and "fr" in data and not _SKIN_TONES.intersection(symbol)
    ]
    pairs = [Pair(_name(english, "en"), _name(french, "fr")) for english, french in names]
    train, valid_pairs, test_pairs = split(dict.fromkeys(pairs), valid, test, seed)
    return _stated(
        Corpus(
            name="emoji names",
            train=train,
            valid=valid_pairs,
            test=test_pairs,
            licence="Unicode License v3 (the names), BSD-3-Clause (the emoji package)",
            attribution="Unicode CLDR, carried by the Python package emoji",
            languages=("en", "fr"),
        )
    )


def _name(code: str, language: str) -> tuple[str, ...]:
    """:cœur_bleu: -> cœur bleu"""
    return tuple(tokenise(code.strip(":").replace("_", " "), language))


def tatoeba(
    path: str | Path | None = None,
    *,
    valid: int = 1000,
    test: int = 1000,
    seed: int = 0,
    max_length: int | None = None,
) -> Corpus:
    """Everyday sentences, English to French, from the Tatoeba project: "Go." / "Va !".

    Read from `path` (fra-eng.zip, fra.txt, or a folder that holds one of them), else from the cache,
    else downloaded into it (3 to 8 MB), else replaced by the grammar corpus, which a printed line says.
    Many English sentences have several translations; they stay together in one set, and `valid` and
    `test` count English sentences. `max_length` leaves out pairs with more tokens on either side.

    Raises FileNotFoundError when there is nothing at `path`, ValueError for a malformed file.
    """

    def read() -> Corpus:
        file = _tatoeba_file(Path(path).expanduser()) if path is not None else _download_tatoeba()
        pairs = _within(dict.fromkeys(from_file(file)), max_length)
        train, valid_pairs, test_pairs = split(pairs, valid, test, seed)
        return Corpus(
            name="tatoeba",
            train=train,
            valid=valid_pairs,
            test=test_pairs,
            licence="CC BY 2.0 FR (https://creativecommons.org/licenses/by/2.0/fr/)",
            attribution="tatoeba.org and www.manythings.org/anki",
            languages=("en", "fr"),
        )

    return _or_grammar("Tatoeba", read, valid=valid, test=test, seed=seed, max_length=max_length)


def _download_tatoeba() -> Path:
    return fetch(cache_folder() / "tatoeba" / "fra-eng.zip", TATOEBA_ADDRESSES)


def _tatoeba_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    names = ("fra.txt", "fra-eng.zip", "fra-eng/fra.txt")
    for name in names:
        if (path / name).exists():
            return path / name
    raise FileNotFoundError(f"{path} holds none of {', '.join(names)}; give the file itself or its folder")


def multi30k(path: str | Path | None = None, *, max_length: int | None = None) -> Corpus:
    """Descriptions of photographs, English to French, with the official sets (Elliott et al. 2016, 2017).

    29,000 pairs for training, 1,014 for validation and 1,000 for testing (test_2016_flickr). Read from
    `path` (the folder with train.en.gz, train.fr.gz and so on, packed or not), else from the cache, else
    downloaded into it (1.3 MB), else replaced by the grammar corpus, which a printed line says.
    The validation and test sets are the official ones; a training pair whose English sentence
    stands in one of them too is left out (there is one). `max_length` leaves out pairs with more tokens on
    either side.

    Raises FileNotFoundError when a file is missing in `path`, ValueError for a malformed one.
    """

    def read() -> Corpus:
        folder = Path(path).expanduser() if path is not None else _download_multi30k()
        train, valid, test = (
            _within(
                from_file(_multi30k_file(folder, f"{part}.en"), _multi30k_file(folder, f"{part}.fr")),
                max_length,
            )
            for part in ("train", "val", "test_2016_flickr")
        )
        held_out = {pair.source for pair in [*valid, *test]}
        return Corpus(
            name="multi30k",
            train=[pair for pair in train if pair.source not in held_out],
            valid=valid,
            test=test,
            licence="terms of Flickr30k, for non-commercial research and education "
            "(see https://github.com/multi30k/dataset)",
            attribution="Multi30K (Elliott et al. 2016, 2017), built on Flickr30k (Young et al. 2014)",
            languages=("en", "fr"),
        )

    return _or_grammar("Multi30k", read, valid=1014, test=1000, seed=0, max_length=max_length)


def _download_multi30k() -> Path:
    folder = cache_folder() / "multi30k"
    for name, sha256 in MULTI30K_FILES.items():
        fetch(folder / name, [address + name for address in MULTI30K_ADDRESSES], sha256=sha256)
    return folder


def _multi30k_file(folder: Path, name: str) -> Path:
    for candidate in (folder / f"{name}.gz", folder / name):
        if candidate.exists():
            return candidate
    raise FileNotFoundError(
        f"{folder} holds neither {name}.gz nor {name}; multi30k needs " + ", ".join(MULTI30K_FILES)
    )


def _within(pairs: Iterable[Pair], max_length: int | None) -> list[Pair]:
    return [
        pair for pair in pairs if max_length is None or max(len(pair.source), len(pair.target)) <= max_length
    ]


def _or_grammar(
    title: str, read: Callable[[], Corpus], *, valid: int, test: int, seed: int, max_length: int | None
) -> Corpus:
    """What `read` gives, or the grammar corpus when a download fails; either way one line says so."""
    try:
        return _stated(read())
    except DownloadError as error:
        print(f"{title} is not on this machine and {error}. Using the embedded grammar corpus instead.")
        # Nearest to the wished length of what the grammar can write, and write enough of.
        longest = min(max(max_length, _FALLBACK_LENGTH), grammar.LONGEST) if max_length else None
        bound = {} if longest is None else {"max_length": longest}
        return grammar.corpus(train=_FALLBACK_PAIRS, valid=valid, test=test, seed=seed, **bound)


def _stated(corpus: Corpus) -> Corpus:
    sizes = " + ".join(f"{len(part):,}" for part in (corpus.train, corpus.valid, corpus.test))
    print(f"{corpus.name}: {sizes} pairs | licence: {corpus.licence} | source: {corpus.attribution}")
    return corpus


def from_file(
    path: str | Path,
    target_path: str | Path | None = None,
    columns: tuple[int, int] = (0, 1),
    *,
    languages: tuple[str, str] = ("en", "fr"),
) -> list[Pair]:
    """Sentence pairs from a file of your own, tokenised.

    Either one file with a pair on each line, tab-separated, the sentences in `columns` (counted from 0;
    further columns are ignored), or two files whose lines translate each other. Files are UTF-8, plain or
    packed as .gz or .zip (with one text file in it). Blank lines are skipped, in two files where
    both are blank.

    Raises FileNotFoundError, or ValueError for a malformed file: the message names file and line, what was
    found there, and what to do.
    """
    source = _lines(Path(path).expanduser())
    if target_path is None:
        where, rows = source.file, _columns(source, columns)
    else:
        target = _lines(Path(target_path).expanduser())
        where, rows = f"{source.file} and {target.file}", _aligned(source, target)
    pairs = []
    for number, left, right in rows:
        pair = Pair(tuple(tokenise(left, languages[0])), tuple(tokenise(right, languages[1])))
        if not pair.source or not pair.target:
            side, other = ("source", right) if not pair.source else ("target", left)
            raise ValueError(
                f"{where}, line {number}: the {side} sentence is empty beside {shortened(other)!r}; "
                "fill it in, or remove the line (of two files, from both)"
            )
        pairs.append(pair)
    return pairs


@dataclass(frozen=True)
class _Text:
    """The lines of a file and its name for messages (with the member's name where it is an archive)."""

    file: str
    lines: list[str]


def _columns(text: _Text, columns: tuple[int, int]) -> Iterable[tuple[int, str, str]]:
    """(line number, source, target) out of tab-separated lines."""
    if min(columns) < 0:
        raise ValueError(f"columns={columns} must not be negative; they are counted from 0")
    for number, line in enumerate(text.lines, start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) <= max(columns):
            found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise ValueError(
                f"{text.file}, line {number}: {found} where columns={columns} need "
                f"{max(columns) + 1}, found {shortened(line)!r}; separate the sentences by a tab, or name "
                "other columns (counted from 0)"
            )
        yield number, cells[columns[0]], cells[columns[1]]


def _aligned(source: _Text, target: _Text) -> Iterable[tuple[int, str, str]]:
    """(line number, source, target) out of two files that translate each other line by line."""
    if len(source.lines) != len(target.lines):
        raise ValueError(
            f"{source.file} has {len(source.lines):,} lines and {target.file} {len(target.lines):,}; "
            "line by line they must translate each other, so look for the first line that does not"
        )
    for number, (left, right) in enumerate(zip(source.lines, target.lines, strict=True), start=1):
        if left.strip() or right.strip():
            yield number, left, right


def _lines(path: Path) -> _Text:
    """The lines of a UTF-8 file, unpacked. Raises as `from_file` says."""
    data, name = _content(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(_encoding_advice(name, data, error)) from None
    # Only the line feed ends a line: str.splitlines would break at rare characters inside a sentence
    # (U+2028, U+0085) as well, and two aligned files would no longer be in step.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if not text.strip():
        raise ValueError(f"{name} is empty; it should hold sentences, one pair (or one sentence) a line")
    return _Text(name, lines)


def _encoding_advice(name: str, data: bytes, error: UnicodeDecodeError) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return (
            f'{name} is UTF-16, not UTF-8; save it again as "UTF-8" in the editor or spreadsheet it came from'
        )
    line = data.count(b"\n", 0, error.start) + 1
    context = data[max(0, error.start - 20) : error.start + 20].decode("latin-1")
    return (
        f"{name}, line {line}: byte 0x{data[error.start]:02x} is no UTF-8 (read as Latin-1: {context!r}); "
        'save the file as "UTF-8", or convert it, as in `iconv -f latin1 -t utf-8`'
    )


def _content(path: Path) -> tuple[bytes, str]:
    """A file's bytes, unpacked by what they are, whatever the name's ending; and a name for messages."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path} (looked in {path.absolute().parent})")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the file in it")
    data = path.read_bytes()
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data), str(path)
        if data.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                member = _only_text(path, archive.namelist())
                return archive.read(member), f"{path}/{member}"
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged archive ({error}); get the file again") from None
    return data, str(path)


def _only_text(path: Path, names: list[str]) -> str:
    """The one member with sentences; folders, hidden files, notes such as _about.txt don't count."""
    texts = [
        name
        for name in names
        if not name.endswith("/")
        and not name.startswith("__MACOSX")
        and not name.rpartition("/")[2].startswith((".", "_"))
    ]
    if len(texts) != 1:
        found = ", ".join(texts) or "none"
        raise ValueError(
            f"{path} should hold one text file, found {found}; unpack it and give the file you mean"
        )
    return texts[0]
