import string

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from course_utils.corpus.text import (
    BOS,
    EOS,
    NO_BREAK_SPACE,
    PAD,
    SPECIAL_WORDS,
    UNK,
    Vocabulary,
    detokenise,
    tokenise,
)

LANGUAGES = ["en", "fr", "de"]

FRENCH = {
    "L'homme n’a pas d'eau.": "l' homme n' a pas d' eau .",
    "J'ai vu qu'il m'a dit « s'il te plaît ».": "j' ai vu qu' il m' a dit « s' il te plaît » .",
    "Jusqu'à lorsqu'il, puisqu'on, quoiqu'elle": "jusqu' à lorsqu' il , puisqu' on , quoiqu' elle",
    "Aujourd'hui quelqu'un d'autre": "aujourd'hui quelqu'un d' autre",
    "d’aujourd’hui": "d' aujourd'hui",
    "Qu'est-ce que c'est ?": "qu' est -ce que c' est ?",
    "A-t-il faim ? Avez-vous soif ?": "a -t-il faim ? avez -vous soif ?",
    "Donnez-le-moi !": "donnez -le -moi !",
    "Peut-être celui-là, moi-même": "peut-être celui-là , moi-même",
    "Fontenay-le-Comte": "fontenay-le-comte",
    "À\u00a010:30\u202f; 3,5\u2009kg\u00a0!": "à 10:30 ; 3,5 kg !",
    "cœur, Œuvre, ÉTÉ": "cœur , œuvre , été",
    "e\u0301te\u0301": "été",
}

ENGLISH = {
    "I don't think it's John's.": "i do n't think it 's john 's .",
    "They couldn't've; we'll, I'd": "they could n't 've ; we 'll , i 'd",
    "A well-known T-shirt at ten o'clock": "a well-known t-shirt at ten o'clock",
    "$3.50, 10,000 (or 50%)...": "$ 3.50 , 10,000 ( or 50 % ) ...",
    'He said: "no!"': 'he said : " no ! "',
    "Yes -- or no": "yes -- or no",
}


@pytest.mark.parametrize(("text", "tokens"), FRENCH.items())
def test_french_tokens(text, tokens):
    assert tokenise(text, "fr") == tokens.split()


@pytest.mark.parametrize(("text", "tokens"), ENGLISH.items())
def test_english_tokens(text, tokens):
    assert tokenise(text, "en") == tokens.split()


def test_a_language_without_rules_of_its_own_keeps_its_marks():
    assert tokenise("हिन्दी भाषा, d'un", "hi") == ["हिन्दी", "भाषा", ",", "d'un"]


def test_case_is_kept_on_request():
    assert tokenise("L'Été à Paris", "fr", lower=False) == ["L'", "Été", "à", "Paris"]


def test_french_typography():
    tokens = tokenise(
        "Qui l'a dit ? « Moi ! », dit-il : 50 % ; rien d'autre (ou presque) 5 $ de plus...", "fr"
    )
    text = "qui l'a dit ? « moi ! », dit-il : 50 % ; rien d'autre (ou presque) 5 $ de plus..."
    for mark in "?!:;»%":
        text = text.replace(f" {mark}", NO_BREAK_SPACE + mark)
    assert detokenise(tokens, "fr") == text.replace("« ", "«" + NO_BREAK_SPACE)


def test_english_typography():
    text = "i don't know: \"it's the boys' dog\", he said (really?) 'quoted' and/or $3.50; 50% -- yes..."
    assert detokenise(tokenise(text, "en"), "en") == text


def test_a_space_stays_where_the_tokens_would_run_together():
    assert detokenise([".", ".", "3"], "en") == ". . 3"
    assert tokenise(detokenise(["l", "'", "s"], "fr"), "fr") == ["l", "'", "s"]


def test_nothing_gives_nothing():
    assert tokenise(" \u00a0\n", "fr") == []
    assert detokenise([], "fr") == ""


# Text out of the pieces where rules meet, and any text at all.
PIECES = """
    ' ’ - -- . .. … , ; : ! ? " « » “ ” ( ) / $ % # l' qu' d l s t n't 's 've -t-il -vous -le -y -moi
    vous en y le aujourd'hui o'clock don't 3 3.5 10:30 x a-b É I İ ß हि \u0301 \u200d \u00ad ❤️
"""
pieces = st.sampled_from(PIECES.split())
mixed = st.lists(st.tuples(pieces, st.sampled_from(["", "", " ", "\u00a0"]))).map(
    lambda parts: "".join(piece + space for piece, space in parts)
)
texts = mixed | st.text() | st.text(string.ascii_letters + string.punctuation + " ")


@pytest.mark.parametrize("language", LANGUAGES)
@example(text="'l' n't")  # glued, the n't would draw the quotation mark into a word
@given(text=texts)
def test_detokenise_undoes_tokenise(language, text):
    tokens = tokenise(text, language)
    assert tokenise(detokenise(tokens, language), language) == tokens


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=texts)
def test_no_letter_is_lost(language, text):
    """But for white space and invisible marks, the tokens are the text."""
    kept = tokenise(text, language, lower=False)
    assert all(token and not any(letter.isspace() for letter in token) for token in kept)
    letters = [letter for letter in text if letter.isascii() and letter.isalnum()]
    assert [letter for letter in "".join(kept) if letter.isascii() and letter.isalnum()] == letters or any(
        not letter.isascii()
        for letter in text  # marks may have composed with a letter
    )


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=texts)
def test_tokens_are_settled(language, text):
    """Tokenising tokens set apart by spaces changes nothing."""
    tokens = tokenise(text, language)
    assert tokenise(" ".join(tokens), language) == tokens


SENTENCES = [["the", "blue", "house"], ["the", "house", "sees"], ["the", "cat"]]


def test_vocabulary_is_ordered_by_frequency_then_alphabet():
    vocabulary = Vocabulary.from_sentences(SENTENCES)
    assert vocabulary.words == [*SPECIAL_WORDS, "the", "house", "blue", "cat", "sees"]
    assert Vocabulary.from_sentences(reversed(SENTENCES)) == vocabulary
    assert [vocabulary.words[i] for i in (PAD, BOS, EOS, UNK)] == list(SPECIAL_WORDS)
    assert len(vocabulary) == 9
    assert "cat" in vocabulary and "dog" not in vocabulary
    assert Vocabulary(vocabulary.words) == vocabulary


def test_vocabulary_bounds():
    assert Vocabulary.from_sentences(SENTENCES, min_count=2).words[4:] == ["the", "house"]
    small = Vocabulary.from_sentences(SENTENCES, max_size=6)
    assert len(small) == 6
    assert small.words[4:] == ["the", "house"]
    with pytest.raises(ValueError, match="max_size=4 leaves no room"):
        Vocabulary.from_sentences(SENTENCES, max_size=4)
    with pytest.raises(ValueError, match="no word occurs 4 times"):
        Vocabulary.from_sentences(SENTENCES, min_count=4)
    with pytest.raises(ValueError, match="'a' is given twice"):
        Vocabulary(["a", "b", "a"])


def test_unknown_words_become_unk_and_are_reported():
    vocabulary = Vocabulary.from_sentences(SENTENCES)
    tokens = ["the", "red", "dog", "sees", "red"]
    assert vocabulary.encode(tokens)[1:3] == [UNK, UNK]
    assert vocabulary.unknown(tokens) == ["red", "dog"]
    assert vocabulary.decode(vocabulary.encode(tokens)) == ["the", "<unk>", "<unk>", "sees", "<unk>"]


@pytest.mark.parametrize("make", [list, torch.tensor])
def test_decode_stops_at_eos_and_drops_padding(make):
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.decode(make([BOS, 4, PAD, 5, EOS, 4, PAD])) == ["a", "b"]


def test_vocabulary_errors_say_what_to_do():
    vocabulary = Vocabulary(["a", "b"])
    with pytest.raises(IndexError, match="6 is no word of this vocabulary, whose numbers run from 0 to 5"):
        vocabulary.decode([6])
    with pytest.raises(IndexError, match="-1 is no word"):
        vocabulary.decode([-1])
    for call in (vocabulary.encode, vocabulary.unknown):
        with pytest.raises(TypeError, match="tokenise it first"):
            call("a b")
    with pytest.raises(TypeError, match="tokenise it first"):
        Vocabulary.from_sentences(["a b"])


@given(st.lists(st.sampled_from(["a", "b", "c", "d"])))
def test_encode_and_decode_are_inverse_on_known_words(tokens):
    vocabulary = Vocabulary(["a", "b", "c", "d"])
    assert vocabulary.decode([BOS, *vocabulary.encode(tokens), EOS]) == tokens
