"""An English-French grammar that writes sentence pairs with gold word alignments.

    >>> sample_length(3, count=1, seed=0)[0].source     # "the blue house", say

The sentences have what makes alignment interesting: adjectives on either side of the noun, agreement in gender
and number, elision and contraction, negation around the verb, pronouns that move before it, one word for
several. The words are in `lexicon.py`.

**Each side determines the other.** No English sentence has two French translations here, or the reverse:
words translate one to one; "his", "her" and "its" (all son, sa, ses) belong to the subject of their own clause;
"it", "him", "her", "them" stand for the object just before, "he", "she", "it", "they" for the subject just before;
"who" and "that" follow their noun directly. A predicate that holds a relative or a "that" clause ends its clause, so
that nothing after it could belong to either of two verbs. Past participles agree only with a subject (être): in the
past there are no object pronouns and no "that" of an object. I and nous, vous, whose gender is not said, never meet
a word that would show it.

**Gold links.** Each word carries the ideas it expresses. Words that express one idea are linked: surely, or
possibly where one of the two does so loosely. The rules:

- Sure: content words, pronouns, determiners (the - le, a - un, some - des, any - de), numerals, conjunctions,
  relative words (who - qui, where - où), prepositions. A contraction expresses both of its words: of - du, the - du.
- Negation: not - pas, never - jamais, longer - plus are sure; ne is possible with each of these English words.
- Auxiliaries of one side (does, did, is going; a, est) are possible with the verb that they help, and does, did
  also with ne ... pas. "to" is possible with the verbs on either side of it.
- In a set phrase one word is sure and the rest possible: looks - cherche, but for - cherche possible; front - devant
  sure, in and of possible; near - près sure, de possible; because - parce sure, qu' possible; many - beaucoup,
  tonight - soir likewise; in "de la soupe", some - de sure, la possible.
- whose - dont is sure, the article after dont possible.

There are more than 10**9 sentences: those of twelve words of the one pattern "the sad king sees the blue house near
the old tree ." are that many already; `tests/corpus/test_grammar.py` counts them from the lexicon.
"""

import itertools
import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from course_utils.corpus import lexicon
from course_utils.corpus.lexicon import BE, GOING, MUST, WANT, Adjective, Noun, Verb, begins_with_vowel
from course_utils.corpus.pairs import Corpus, Pair

# ---------------------------------------------------------------------------------------------------------------
# Phrases: words on both sides, joined by the ideas they express


class Word(NamedTuple):
    """A word, the ideas it surely expresses and those it only helps to express."""

    text: str
    sure: tuple[int, ...]
    loose: tuple[int, ...] = ()


Words = tuple[Word, ...]


class Phrase:
    """The words of a phrase in English and in French, each side in its own order."""

    __slots__ = ("english", "french")

    def __init__(self, english: Words, french: Words) -> None:
        self.english = english
        self.french = french

    def __add__(self, other: "Phrase") -> "Phrase":
        """One after the other on both sides."""
        return Phrase(self.english + other.english, self.french + other.french)

    def crossed(self, other: "Phrase") -> "Phrase":
        """One after the other in English, the other way round in French: blue + house, maison + bleue."""
        return Phrase(self.english + other.english, other.french + self.french)


EMPTY = Phrase((), ())

_new_idea = itertools.count().__next__


@cache
def _parsed(text: str) -> tuple[tuple[str, bool], ...]:
    return tuple((token.lstrip("~"), token.startswith("~")) for token in text.split())


def _words(text: str, idea: tuple[int]) -> Words:
    return tuple([Word(token, (), idea) if loose else Word(token, idea) for token, loose in _parsed(text)])


def phrase(english: str, french: str) -> Phrase:
    """A phrase that expresses one new idea; words marked with a tilde express it loosely."""
    idea = (_new_idea(),)
    return Phrase(_words(english, idea), _words(french, idea))


# ---------------------------------------------------------------------------------------------------------------
# Spelling: what the neighbours of a word do to it, and the links


_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "que": "qu'", "je": "j'", "me": "m'"}
_BEFORE_VOWEL = _ELIDED | {"ce": "cet", "ma": "mon", "sa": "son"}
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_starts_with_vowel = cache(begins_with_vowel)


def _spell_french(words: Words) -> list[Word]:
    """Elides and contracts, from the right, so that the next word is always final: de l'hôtel, du jardin."""
    spelled: list[Word] = []
    following = "."
    for word in reversed(words):
        text = word.text
        if (text, following) in _CONTRACTED:
            article = spelled.pop()
            text = _CONTRACTED[text, following]
            word = Word(text, word.sure + article.sure, word.loose + article.loose)
        elif text in _BEFORE_VOWEL and _starts_with_vowel(following):
            text = _BEFORE_VOWEL[text]
            word = word._replace(text=text)
        elif text == "si" and following in ("il", "ils"):
            text = "s'"
            word = word._replace(text=text)
        spelled.append(word)
        following = text
    return spelled[::-1]


def _spell_english(words: Words) -> list[Word]:
    """Turns "a" into "an" before a vowel sound."""
    spelled = list(words)
    for place, (word, following) in enumerate(itertools.pairwise(words)):
        if word.text == "a" and (following.text[0] in "aeiou" or following.text == "honest"):
            spelled[place] = word._replace(text="an")
    return spelled


def _pair(phrase: Phrase) -> Pair:
    """The finished pair: both sides spelled, words of one idea linked."""
    english, french = _spell_english(phrase.english), _spell_french(phrase.french)
    surely: dict[int, list[int]] = {}
    loosely: dict[int, list[int]] = {}
    for place, word in enumerate(english):
        for idea in word.sure:
            surely.setdefault(idea, []).append(place)
        for idea in word.loose:
            loosely.setdefault(idea, []).append(place)
    links, possible = set(), set()
    for target, word in enumerate(french):
        for idea in word.sure:
            links.update((source, target) for source in surely.get(idea, ()))
            possible.update((source, target) for source in loosely.get(idea, ()))
        for idea in word.loose:
            possible.update((source, target) for source in surely.get(idea, ()))
            possible.update((source, target) for source in loosely.get(idea, ()))
    return Pair(
        tuple([word.text for word in english]),
        tuple([word.text for word in french]),
        frozenset(links),
        frozenset(possible - links),
    )


# ---------------------------------------------------------------------------------------------------------------
# Verbs


class Subject(NamedTuple):
    """What agrees with a noun has to know of it. `specific`: "not" beside it can be read in one way only."""

    plural: bool
    feminine: bool
    kinds: str
    specific: bool = True
    first: bool = False  # I

    @property
    def human(self) -> bool:
        return "p" in self.kinds or "k" in self.kinds

    @property
    def animate(self) -> bool:
        return self.human or "a" in self.kinds

    @property
    def pronoun(self) -> tuple[str, str]:
        french = "elle" if self.feminine else "il"
        if self.plural:
            return "they", french + "s"
        return ("she" if self.feminine else "he") if self.human else "it", french

    @property
    def object_pronoun(self) -> tuple[str, str]:
        if self.plural:
            return "them", "les"
        english = ("her" if self.feminine else "him") if self.human else "it"
        return english, "la" if self.feminine else "le"

    @property
    def possessive(self) -> str:
        return {"he": "his", "she": "her", "it": "its", "they": "their"}[self.pronoun[0]]


I = Subject(plural=False, feminine=False, kinds="p", first=True)  # noqa: E741
_ANYBODY = Subject(plural=False, feminine=False, kinds="p")

_ADVERBS = {
    "not": ("not", "pas"),
    "never": ("never", "jamais"),
    "no longer": ("~no longer", "plus"),
    "often": ("often", "souvent"),
    "always": ("always", "toujours"),
    "sometimes": ("sometimes", "parfois"),
}
_NEGATIVE = ("not", "never", "no longer")
_LEADING = {"going": GOING, "must": MUST, "want": WANT}
_HELPERS = {False: ("ai", "a", "ont"), True: ("-", "est", "sont")}  # avoir, être


def _form(forms: Sequence[str], subject: Subject) -> str:
    """The present of a French verb, given as je, il, ils."""
    return forms[0 if subject.first else 1 + subject.plural]


def _english_form(verb: Verb, subject: Subject, past: bool) -> str:
    base, third, before = verb.english
    if base == "be":
        if past:
            return "were" if subject.plural else "was"
        return "am" if subject.first else "are" if subject.plural else "is"
    return before if past else base if subject.plural or subject.first else third


def conjugate(verb: Verb, mode: str, adverb: str, subject: Subject, clitic: Phrase = EMPTY) -> Phrase:
    """The verb with what stands around it; an object pronoun may be given as `clitic`.

    `mode` is present, past, going ("is going to"), must or want; `adverb` a key of `_ADVERBS` or "".
    English: [does] [not] verb [particle] [it]. French: [ne] [la] voit [pas], [n'] a [pas] vu, [ne] veut [pas]
    [la] voir.
    """
    leading = _LEADING.get(mode)
    finite = leading or verb
    main = (_new_idea(),)
    first = (_new_idea(),) if leading else main
    around = phrase(*_ADVERBS[adverb]) if adverb else EMPTY
    negation = around.french[0].sure if adverb in _NEGATIVE else ()

    form = _english_form(finite, subject, mode == "past")
    if finite is BE or finite is MUST:
        english = (Word(form, first), *around.english)
    elif finite is GOING:
        english = (Word(form, (), first), *around.english, Word("going", first))
    elif adverb == "not":
        do = "did" if mode == "past" else "do" if subject.plural or subject.first else "does"
        english = (Word(do, (), first + negation), *around.english, Word(finite.english[0], first))
    else:
        english = (*around.english, Word(form, first))
    if leading:
        to = () if leading is MUST else (Word("to", (), first + main),)
        english += (*to, Word(verb.english[0], main))
    if verb.particle:
        english += (Word(verb.particle, (), main),)

    french = (Word("ne", (), negation),) if negation else ()
    if leading:
        form = Word(_form(leading.french, subject), first)
        french += (form, *around.french, *clitic.french, Word(verb.infinitive, main))
    elif mode == "past" and verb is BE:
        french += (Word("étaient" if subject.plural else "était", main), *around.french)
    elif mode == "past":
        participle = verb.participle
        if verb.moves:
            participle += "e" * subject.feminine + "s" * subject.plural
        helper = Word(_form(_HELPERS[verb.moves], subject), (), main)
        french += (*clitic.french, helper, *around.french, Word(participle, main))
    else:
        french += (*clitic.french, Word(_form(verb.french, subject), main), *around.french)
    return Phrase(english + clitic.english, french)


# For each time of a sentence: mode, adverb, how often. "plain" is the present without a leading verb.
_PLAIN = [("present", adverb, often) for adverb, often in (("", 12), ("not", 4), *((a, 1) for a in _ADVERBS))]
_SHAPES = {
    "plain": _PLAIN,
    "present": _PLAIN
    + [(mode, adverb, often) for mode in _LEADING for adverb, often in (("", 2), ("not", 1))],
    "past": [("past", adverb, often) for adverb, often in (("", 9), ("not", 3), ("never", 1), ("often", 1))],
}


@cache
def _length(verb: Verb, mode: str, adverb: str) -> int:
    return len(conjugate(verb, mode, adverb, _ANYBODY).english)


@cache
def _shapes(verb: Verb, time: str, room: int, animate: bool, specific: bool) -> list[tuple[str, str]]:
    """The (mode, adverb) that a verb can take in at most `room` English words, the usual ones repeated."""
    return [
        (mode, adverb)
        for mode, adverb, often in _SHAPES[time]
        if (animate or mode not in ("must", "want")) and (specific or adverb not in _NEGATIVE)
        if _length(verb, mode, adverb) <= room
        for _ in range(often)
    ]


# ---------------------------------------------------------------------------------------------------------------
# Which words go together


@cache
def _nouns(kinds: str) -> list[Noun]:
    return [noun for noun in lexicon.NOUNS if set(noun.kinds) & set(kinds)]


@cache
def _adjectives(noun: Noun) -> tuple[list[Adjective], list[Adjective], list[Adjective]]:
    tables = lexicon.BEFORE, lexicon.NEAREST, lexicon.AFTER
    before, nearest, after = ([a for a in table if set(a.kinds) & set(noun.kinds)] for table in tables)
    return before, nearest, after


@cache
def _predicative(kinds: str) -> list[Adjective]:
    """Adjectives of which one says that something of these kinds "is" so."""
    table = lexicon.BEFORE + lexicon.NEAREST + lexicon.AFTER
    return [a for a in table if set(a.kinds) & set(kinds) and a.english not in lexicon.NEVER_PREDICATE]


@cache
def _verbs(table: str, kinds: str) -> list[Verb]:
    """The verbs of a table that have a subject of these kinds."""
    return [verb for verb in getattr(lexicon, table) if set(verb.subjects) & set(kinds)]


@cache
def _verbs_taking(kinds: str) -> list[Verb]:
    """Transitive verbs that have an object of these kinds."""
    return [verb for verb in lexicon.TRANSITIVE if set(verb.objects) & set(kinds)]


_DEFINITE = {"the": 6, "this": 2, "my": 1, "our": 1, "your": 1, "owner": 3}
_INDEFINITE = {"a": 6, "every": 1, "many": 1, "number": 2}
_POSSESSIVE = ("my", "our", "your", "owner")
_IN_SCOPE = {
    "any": _DEFINITE | _INDEFINITE,
    "definite": _DEFINITE,
    "negated": _DEFINITE | {"a": 6},
    "after de": _DEFINITE | {"a": 4, "every": 1, "number": 2},
    "the": {"the": 1},
    "counted": _DEFINITE,
}


@cache
def _determiners(scope: str, plural: bool, mass: bool, owned: bool, modified: bool) -> list[str]:
    """Names of determiners that may stand before a noun, the usual ones repeated."""
    names = dict(_IN_SCOPE[scope])
    banned = {"many", "number"} if not plural else {"every"}
    if mass:
        banned |= {"every", "many", "number"}
    if scope == "after de" and (plural or mass):
        banned.add("a")  # "de" swallows des and du; English would keep "some"
    if modified:
        banned.update(_POSSESSIVE)
    if not owned:
        banned.add("owner")
    return [name for name, often in names.items() if name not in banned for _ in range(often)]


@cache
def _places(kinds: str, room: int) -> list[lexicon.Preposition]:
    """Prepositions that place a noun of these kinds, with room left for two more words."""
    return [
        preposition
        for preposition in lexicon.PLACING
        if set(preposition.placed) & set(kinds) and len(preposition.english.split()) + 2 <= room
    ]


# Times and places at the end of a predicate, by mode
_HERE = ("here", "ici")
_LATER = [("tomorrow", "demain"), ("tonight", "~ce soir"), _HERE]
_TIMES = {
    "present": [("now", "maintenant"), _HERE],
    "past": [("yesterday", "hier"), _HERE],
    "going": _LATER,
    "must": _LATER,
    "want": _LATER,
}


def _times(mode: str, adverb: str) -> list[tuple[str, str]]:
    return _TIMES[mode] if adverb in ("", "not") else [_HERE]


# What joins clauses, the usual ones repeated
_COORDINATING = [("and", "et")] * 4 + [("but", "mais")] * 2
_PRESENT_JOINTS = [("because", "parce ~que"), ("while", "pendant ~que"), ("when", "quand"), ("if", "si")]
_JOINTS = {
    "present": _COORDINATING + _PRESENT_JOINTS,
    "past": _COORDINATING + [("because", "parce ~que"), ("when", "quand")],
}
_PLAIN_JOINTS = ("while", "when", "if")  # with the present beside them, no "is going to"


# Predicates: what they are made of, the fewest words they need, how often.
_FRAMES = [
    ("intransitive", 1, 3),
    ("being", 2, 3),
    ("transitive", 2, 8),
    ("directed", 4, 2),
    ("giving", 6, 2),
    ("saying", 5, 1),
]


@cache
def _frames(size: int, kinds: str, animate: bool, closing: int, past: bool) -> list[str]:
    return [
        name
        for name, least, often in _FRAMES
        if size >= least
        if name == "being" or any(set(verb.subjects) & set(kinds) for verb in getattr(lexicon, name.upper()))
        if name != "saying" or (closing > 1 and not past)
        if animate or name in ("being", "intransitive")
        for _ in range(often)
    ]


# ---------------------------------------------------------------------------------------------------------------
# Sentences


class NounPhrase(NamedTuple):
    phrase: Phrase
    subject: Subject


class _Writer:
    """Writes phrases of exactly the wished number of English words, all draws from one seed.

    Throughout, `size` counts English words; `owner` is the subject that his, her, its and their belong to;
    `closing` says how many relative or "that" clauses, one in the other, may end the phrase.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random
        self.used: set[Noun] = set()

    # Draws

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def noun(self, kinds: str) -> Noun:
        """A noun of one of these kinds, not used in this sentence yet if that is easily had."""
        for _ in range(4):
            noun = self.pick(_nouns(kinds))
            if noun not in self.used:
                break
        self.used.add(noun)
        return noun

    def shape(self, verb: Verb, time: str, room: int, subject: Subject) -> tuple[str, str] | None:
        options = _shapes(verb, time, room, subject.animate, subject.specific)
        return self.pick(options) if options else None

    # Noun phrases

    def noun_phrase(
        self, size: int, kinds: str, scope: str = "any", owner: Subject | None = None, closing: int = 2
    ) -> NounPhrase:
        """A noun phrase: simple, or followed by "of ...", "near ...", "who ..."."""
        noun = self.noun(kinds)
        modifiers = self.modifiers(noun, size, closing)
        if not modifiers or (size <= 5 and self.chance(0.6 if size == 5 else 0.8)):
            return self.simple(noun, size, scope, owner)
        least, modifier = self.pick(modifiers)
        head_size = min(size - least, 2 if size < 6 else self.between(2, 3))
        if modifier == "of":
            scope = "the"
        elif scope == "negated":
            scope = "definite"
        head, subject = self.simple(noun, head_size, scope, owner, modified=True)
        if modifier == "of":
            rest = self.complement(noun, size - head_size, owner, closing)
        elif modifier == "place":
            rest = self.place(size - head_size, noun.kinds, owner, closing)
        else:
            rest = self.relative(size - head_size, noun, subject, closing - 1)
        return NounPhrase(head + rest, subject)

    def modifiers(self, noun: Noun, size: int, closing: int) -> list[tuple[int, str]]:
        """What may follow a noun, each with the fewest words it needs and as often as it is usual."""
        animate = noun.kinds in ("p", "k", "a")
        modifiers = []
        if closing and size >= (4 if animate else 6):
            modifiers += [(2 if animate else 4, "relative")] * 3
        if size >= 5 and noun.kinds not in ("p", "t"):
            modifiers += [(3, "of")] * 2
        if size >= 5 and _places(noun.kinds, 3):
            modifiers += [(3, "place")]
        return modifiers

    def simple(
        self, noun: Noun, size: int, scope: str, owner: Subject | None, modified: bool = False
    ) -> NounPhrase:
        """Determiner, numeral, adjectives, noun: two to five words."""
        before, nearest, after = _adjectives(noun)
        spare = size - 2
        joined = spare == 3 and len(after) > 1 and self.chance(0.6)
        plural = not noun.mass and self.chance(1 if spare == 3 and not joined else 0.35)
        counted = (
            plural
            and spare > 0
            and not joined
            and scope != "negated"
            and self.chance(0.25 if spare < 3 else 1)
        )
        front, back = EMPTY, EMPTY
        vowel_word = noun.french[plural]

        def adjective(word: Adjective, following: str = "") -> Phrase:
            return phrase(word.english, word.agreeing(noun.feminine, plural, following))

        adjectives = spare - counted
        if joined:
            one, other = self.two(after)
            back = adjective(one) + phrase("and", "et") + adjective(other)
        elif adjectives == 2:
            front, back = adjective(self.pick(before), vowel_word), adjective(self.pick(nearest))
        elif adjectives == 1:
            word = self.pick(before + nearest + after)
            if word in before:
                front = adjective(word, vowel_word)
            else:
                back = adjective(word)

        names = _determiners(
            "counted" if counted and scope != "the" else scope, plural, noun.mass, owner is not None, modified
        )
        name = self.pick(names)
        determiner = self.determiner(name, noun, plural, scope, owner, bool(front.english))
        if counted:
            if name == "the" and self.chance(0.5):
                determiner = phrase("all", "toutes" if noun.feminine else "tous") + determiner
            else:
                determiner += phrase(*self.pick(lexicon.NUMERALS))
        written = determiner + front + back.crossed(phrase(noun.english[plural], noun.french[plural]))
        specific = name in _DEFINITE and not counted
        return NounPhrase(written, Subject(plural, noun.feminine, noun.kinds, specific))

    def two(self, options: Sequence) -> tuple:
        first = self.pick(options)
        return first, self.pick([option for option in options if option is not first])

    def determiner(
        self, name: str, noun: Noun, plural: bool, scope: str, owner: Subject | None, adjective_follows: bool
    ) -> Phrase:
        if name == "number":
            return phrase(*self.pick(lexicon.NUMERALS))
        if name == "a" and scope == "negated":
            return phrase("any" if plural or noun.mass else "a", "de")
        if name == "a" and noun.mass:
            return phrase("some", "de ~la" if noun.feminine else "de ~le")
        if name == "a" and plural and adjective_follows:
            return phrase("some", "de")
        row = lexicon.DETERMINERS[owner.possessive if name == "owner" else name]
        return phrase(row.english[plural], row.french[2 * plural + noun.feminine])

    def complement(self, noun: Noun, size: int, owner: Subject | None, closing: int) -> Phrase:
        """The door "of the house", the book "of the king"."""
        kinds = "l" if noun.kinds == "e" else "pk"
        return phrase("of", "de") + self.noun_phrase(size - 1, kinds, "after de", owner, closing).phrase

    def place(self, size: int, kinds: str, owner: Subject | None, closing: int) -> Phrase:
        """Where something of these kinds is: "in the garden"."""
        return self.led_by(self.pick(_places(kinds, size)), size, owner, closing)

    def led_by(
        self, preposition: lexicon.Preposition, size: int, owner: Subject | None, closing: int
    ) -> Phrase:
        leading = phrase(preposition.english, preposition.french)
        scope = "after de" if leading.french[-1].text == "de" else "any"
        rest = self.noun_phrase(size - len(leading.english), preposition.objects, scope, owner, closing)
        return leading + rest.phrase

    # Relative clauses

    def relative(self, size: int, noun: Noun, subject: Subject, closing: int) -> Phrase:
        """A relative clause right after its noun: "who sings", "that the king sees", "whose sister sings"."""
        subject = subject._replace(specific=True)
        options = ["subject"] * 3 if subject.animate or size == 4 or _places(noun.kinds, 3) else []
        if size >= 4:
            options += ["object"] * 3
            options += ["where"] * 3 if "l" in noun.kinds else []
            options += ["whose"] if "p" in noun.kinds else []
        while True:
            option = self.pick(options)
            if option == "subject":
                time = "past" if self.chance(0.2) else "present"
                link = phrase("who" if subject.human else "that", "qui")
                return link + self.predicate(size - 1, subject, time, closing)
            if option == "object":
                written = self.object_relative(size, noun, closing)
                if written:
                    return written
            elif option == "where":
                return phrase("where", "où") + self.clause(size - 1, "plain", closing=0)
            else:
                return self.whose(size)

    def object_relative(self, size: int, noun: Noun, closing: int) -> Phrase | None:
        verb = self.pick(_verbs_taking(noun.kinds))
        if self.chance(0.15):
            who = NounPhrase(phrase("i", "je"), I)
        else:
            who = self.simple(self.noun(verb.subjects.replace("a", "")), self.between(2, 3), "any", None)
        room = size - 1 - len(who.phrase.english)
        shape = self.shape(verb, "present", room, who.subject)
        if not shape:
            return None
        rest = self.adjunct(room - _length(verb, *shape), who.subject, shape, "p", closing)
        return rest and phrase("that", "que") + who.phrase + conjugate(verb, *shape, who.subject) + rest

    def whose(self, size: int) -> Phrase:
        noun = self.noun("k")
        adjective = self.pick(_adjectives(noun)[0]) if size > 4 and self.chance(0.4) else None
        owned = phrase(noun.english[0], noun.french[0])
        if adjective:
            owned = (
                phrase(adjective.english, adjective.agreeing(noun.feminine, False, noun.french[0])) + owned
            )
        link = phrase("whose", "dont ~la" if noun.feminine else "dont ~le")
        subject = Subject(False, noun.feminine, noun.kinds)
        return link + owned + self.predicate(size - 1 - len(owned.english), subject, "present", closing=0)

    # Predicates: each of these returns None where the drawn verb does not fill the size

    def predicate(self, size: int, subject: Subject, time: str, closing: int = 2) -> Phrase:
        """A verb and all that belongs to it."""
        frames = _frames(size, subject.kinds, subject.animate, closing, time == "past")
        while True:
            written = getattr(self, self.pick(frames))(size, subject, time, closing)
            if written:
                return written

    def intransitive(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        verb = self.pick(_verbs("INTRANSITIVE", subject.kinds))
        shape = self.shape(verb, time, size, subject)
        if not shape or (subject.first and verb.moves and time == "past"):
            return None
        rest = self.adjunct(size - _length(verb, *shape), subject, shape, subject.kinds, closing)
        return rest and conjugate(verb, *shape, subject) + rest

    def being(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Somebody is tired, something is under the table."""
        shape = self.shape(BE, time, size - 1, subject)
        if subject.first or not shape:
            return None
        rest = size - _length(BE, *shape)
        verb = conjugate(BE, *shape, subject)
        if (
            rest >= 3
            and shape[0] in ("present", "past")
            and _places(subject.kinds, rest)
            and self.chance(0.6)
        ):
            return verb + self.place(rest, subject.kinds, self.owning(subject), closing)
        adjectives = _predicative(subject.kinds)
        if rest == 3 and len(adjectives) > 1:
            one, other = self.two(adjectives)
            return verb + self.said_of(one, subject) + phrase("and", "et") + self.said_of(other, subject)
        if rest > 1 and not subject.animate:
            return None
        more = self.adjunct(rest - 1, subject, shape, subject.kinds, closing)
        return more and verb + self.said_of(self.pick(adjectives), subject) + more

    def said_of(self, adjective: Adjective, subject: Subject) -> Phrase:
        return phrase(adjective.english, adjective.agreeing(subject.feminine, subject.plural))

    def transitive(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        verb = self.pick(_verbs("TRANSITIVE", subject.kinds))
        if time != "past" and set(verb.objects) & set("pk") and self.chance(0.1 if size > 2 else 1):
            return self.transitive_with(verb, self.speaker(subject), size, subject, time, closing)
        shape = self.shape(verb, time, size - 2, subject)
        if not shape:
            return None
        rest = size - _length(verb, *shape)
        return conjugate(verb, *shape, subject) + self.objects(verb, rest, subject, shape, closing)

    def transitive_with(
        self, verb: Verb, clitic: Phrase, size: int, subject: Subject, time: str, closing: int
    ) -> Phrase | None:
        """A verb with an object pronoun: sees it, la voit."""
        shape = self.shape(verb, time, size - 1, subject)
        if not shape:
            return None
        rest = self.adjunct(size - 1 - _length(verb, *shape), subject, shape, "p", closing)
        return rest and conjugate(verb, *shape, subject, clitic) + rest

    def speaker(self, subject: Subject) -> Phrase:
        """me, us or you as an object; I see you, never I see me."""
        options = [("me", "me"), ("us", "nous"), ("you", "vous")]
        return phrase(*(options[2] if subject.first else self.pick(options)))

    def objects(
        self, verb: Verb, size: int, subject: Subject, shape: tuple[str, str], closing: int
    ) -> Phrase:
        """One object or two joined by "and", and where there is room the place or time."""
        owner = self.owning(subject)
        negative = shape[1] in _NEGATIVE
        scope = "definite" if verb.detail == "le" else "any"
        if negative:
            scope = "negated" if verb.detail == "de" else "definite"
        if 5 <= size <= 7 and not negative and self.chance(0.15):
            first = self.between(2, min(size - 3, 3))
            both = [
                self.simple(self.noun(verb.objects), part, scope, owner) for part in (first, size - 1 - first)
            ]
            return both[0].phrase + phrase("and", "et") + both[1].phrase
        aside = (
            self.between(3, size - 2)
            if size >= 5 and self.chance(0.4)
            else int(size >= 3 and self.chance(0.1))
        )
        if not aside:
            return self.noun_phrase(size, verb.objects, scope, owner, closing).phrase
        thing = self.noun_phrase(size - aside, verb.objects, scope, owner, closing=0)
        return thing.phrase + self.adjunct(aside, subject, shape, "p", closing)

    def directed(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Goes to the village, speaks to the king."""
        verb = self.pick(_verbs("DIRECTED", subject.kinds))
        shape = self.shape(verb, time, size - 3, subject)
        if not shape or (subject.first and verb.moves and time == "past"):
            return None
        english, french = verb.detail.split()
        preposition = lexicon.Preposition(english, french, "", verb.objects)
        rest = size - _length(verb, *shape)
        return conjugate(verb, *shape, subject) + self.led_by(
            preposition, rest, self.owning(subject), closing
        )

    def giving(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Gives the book to the king, gives me the book."""
        verb = self.pick(_verbs("GIVING", subject.kinds))
        to_speaker = self.chance(0.25)
        shape = self.shape(verb, time, size - (3 if to_speaker else 5), subject)
        if not shape:
            return None
        rest = size - _length(verb, *shape)
        if to_speaker:
            given = conjugate(verb, *shape, subject, self.speaker(subject))
            return given + self.objects(verb, rest - 1, subject, shape, closing)
        part = self.between(2, min(rest - 3, 4))
        owner = self.owning(subject)
        negative = shape[1] in _NEGATIVE
        scope = "any" if not negative else "negated" if verb.detail == "de" else "definite"
        thing = self.noun_phrase(part, verb.objects, scope, owner, closing=0).phrase
        person = self.led_by(lexicon.Preposition("to", "à", "", "pk"), rest - part, owner, closing)
        return conjugate(verb, *shape, subject) + thing + person

    def saying(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Says that she is tired."""
        verb = self.pick(_verbs("SAYING", subject.kinds))
        rest = size - 2
        that = conjugate(verb, "present", "", subject) + phrase("that", "que")
        if not subject.first and self.chance(0.4):
            return that + phrase(*subject.pronoun) + self.predicate(rest - 1, subject, "present", closing - 1)
        return that + self.clause(rest, "present", closing - 1)

    def owning(self, subject: Subject) -> Subject | None:
        return None if subject.first else subject

    def adjunct(
        self, size: int, subject: Subject, shape: tuple[str, str], kinds: str, closing: int
    ) -> Phrase | None:
        """What may end a predicate: nothing, a time, a place or company. None where no words fit."""
        if size == 0:
            return EMPTY
        if size == 1:
            return phrase(*self.pick(_times(*shape)))
        if size == 2:
            return None
        if subject.human and self.chance(0.25):
            return self.led_by(lexicon.WITH, size, self.owning(subject), closing)
        return self.place(size, kinds, self.owning(subject), closing) if _places(kinds, size) else None

    # Clauses and sentences

    def clause(self, size: int, time: str, closing: int = 2) -> Phrase:
        """A subject and its predicate, or two predicates."""
        if self.chance(0.08):
            who = NounPhrase(phrase("i", "je"), I)
        else:
            part = min(size - 1, self.between(2, size // 2 if closing and size > 8 else 3))
            kinds = "pk" if self.chance(0.65) else "a" if size - part < 3 or self.chance(0.5) else "oflute"
            who = self.noun_phrase(part, kinds, closing=min(closing, 1))
        return who.phrase + self.predicates(size - len(who.phrase.english), who.subject, time, closing)

    def predicates(self, size: int, subject: Subject, time: str, closing: int) -> Phrase:
        """One predicate, or two joined by "and" or "but"."""
        if size >= 6 and subject.animate and self.chance(0.3):
            written = self.with_pronoun(size, subject, time) if time != "past" and self.chance(0.6) else None
            if written:
                return written
            first = self.between(2, size - 3)
            joint = phrase("and", "et") if self.chance(0.8) else phrase("but", "mais")
            return (
                self.predicate(first, subject, time, closing=0)
                + joint
                + self.predicate(size - 1 - first, subject, time, closing)
            )
        return self.predicate(size, subject, time, closing)

    def with_pronoun(self, size: int, subject: Subject, time: str) -> Phrase | None:
        """Sees the house and buys it; both verbs take the same object."""
        verb, other = self.two(_verbs("TRANSITIVE", subject.kinds))
        kinds = "".join(sorted(set(verb.objects) & set(other.objects)))
        if not kinds:
            return None
        scope = "definite" if verb.detail == "le" or other.detail == "le" else "any"
        part = self.between(2, 3)
        thing = self.simple(self.noun(kinds), part, scope, self.owning(subject))
        taken = _length(verb, "present", "") + part + 1
        clitic = phrase(*thing.subject.object_pronoun)
        rest = self.transitive_with(other, clitic, size - taken, subject, time, closing=0)
        joint = phrase("and", "et")
        return rest and conjugate(verb, "present", "", subject) + thing.phrase + joint + rest

    def twin(self, size: int, time: str) -> Phrase:
        """Two clauses, the second about the subject of the first: the girl sings because she is happy."""
        joints = _JOINTS["past" if time == "past" else "present"]
        joint = self.pick(joints)
        if joint[0] in _PLAIN_JOINTS and time == "present":
            time = "plain"
        noun = self.noun("pk" if self.chance(0.7) else "a")
        head = self.simple(noun, self.between(2, min(size - 4, 4)), "any", None)
        spare = size - len(head.phrase.english) - 2
        first = self.between(1, min(spare - 1, 3))
        frame = self.bare(first, head.subject, time)
        second = self.predicate(spare - first, head.subject, time)
        return head.phrase + frame + phrase(*joint) + phrase(*head.subject.pronoun) + second

    def bare(self, size: int, subject: Subject, time: str) -> Phrase:
        """A predicate that names nothing else, so that a pronoun after it can only mean the subject."""
        while True:
            frame = self.intransitive if self.chance(0.6) else self.being
            written = (
                frame(size, subject, time, closing=0) if size < 3 or frame == self.intransitive else None
            )
            if written:
                return written

    def together(self, size: int, time: str) -> Phrase:
        """Two subjects of one predicate: the king and the queen are happy."""
        parts = self.between(2, 3), self.between(2, 3)
        one, other = (self.simple(self.noun("pk"), part, "any", None) for part in parts)
        both = Subject(True, one.subject.feminine and other.subject.feminine, "p", specific=False)
        who = one.phrase + phrase("and", "et") + other.phrase
        return who + self.predicates(size - len(who.english), both, time, closing=2)

    def sentence(self, size: int) -> Phrase:
        """One clause or a chain of clauses, and the full stop."""
        time = "past" if self.chance(0.3) else "present"
        parts = self.parts(size - 1)
        joints = self.joints(len(parts) - 1, time)
        written = EMPTY
        for place, part in enumerate(parts):
            nearby = joints[max(place - 1, 0) : place + 1]
            when = "plain" if time == "present" and any(j[0] in _PLAIN_JOINTS for j in nearby) else time
            if place:
                written += phrase(*joints[place - 1])
            if part >= 7 and self.chance(0.25):
                written += self.twin(part, when)
            elif place == 0 and part >= 8 and self.chance(0.12):
                written += self.together(part, when)
            else:
                written += self.clause(part, when)
        return written + phrase(".", ".")

    def parts(self, size: int) -> list[int]:
        """The sizes of the clauses of a sentence, which are joined by one word each."""
        count = max(1, round(size / (6 + 6 * self.random())))
        spare = size - (count - 1) - 4 * count
        if count == 1 or spare < 0:
            return [size]
        cuts = sorted(self.between(0, spare) for _ in range(count - 1))
        return [4 + high - low for low, high in itertools.pairwise([0, *cuts, spare])]

    def joints(self, count: int, time: str) -> list[tuple[str, str]]:
        """Conjunctions and commas; "because" and its like once a sentence, a comma never last."""
        options = list(_JOINTS[time])
        chosen = []
        for place in range(count):
            joint = (",", ",") if place < count - 1 and self.chance(0.3) else self.pick(options)
            if joint not in (("and", "et"), ("but", "mais"), (",", ",")):
                options.remove(joint)
            chosen.append(joint)
        return chosen

    def pair(self, size: int) -> Pair:
        """A sentence, or where it is short perhaps only a noun phrase."""
        self.used.clear()
        if size < 9 and self.chance(0.9 if size == 3 else 0.3):
            return _pair(self.noun_phrase(size, "pkaowflgutes").phrase)
        return _pair(self.sentence(size))


# ---------------------------------------------------------------------------------------------------------------
# What the course uses


_SHORTEST, _LONGEST = 3, 60


def _check_lengths(low: int, high: int) -> None:
    if not _SHORTEST <= low <= high <= _LONGEST:
        raise ValueError(
            f"lengths from {low} to {high} English words: the grammar writes {_SHORTEST} to {_LONGEST}, "
            "and the least may not be above the most"
        )


def sample_length(length: int, *, count: int, seed: int) -> list[Pair]:
    """`count` English-French pairs of exactly `length` English words, the full stop counted as one.

    Raises ValueError for a length outside 3 to 60.
    """
    return sample(count, seed=seed, min_length=length, max_length=length)


def sample(count: int, *, seed: int, min_length: int = 3, max_length: int = 60) -> list[Pair]:
    """`count` English-French pairs, all lengths from `min_length` to `max_length` English words equally likely.

    The same seed gives the same pairs. Short sentences may come up more than once. Raises ValueError for
    lengths outside 3 to 60.
    """
    _check_lengths(min_length, max_length)
    writer = _Writer(seed)
    return [writer.pair(writer.between(min_length, max_length)) for _ in range(count)]


def corpus(
    *, train: int, valid: int, test: int, seed: int = 0, min_length: int = 3, max_length: int = 50
) -> Corpus:
    """Pairs that all differ on both sides, so that no sentence of one set is in another.

    Lengths are spread as in `sample`, but for the shortest, where the sentences may run out. Raises ValueError
    where the grammar has not enough sentences of these lengths.
    """
    _check_lengths(min_length, max_length)
    writer = _Writer(seed)
    wanted = train + valid + test
    pairs: dict[tuple[str, ...], Pair] = {}
    french: set[tuple[str, ...]] = set()
    misses = 0
    while len(pairs) < wanted:
        pair = writer.pair(writer.between(min_length, max_length))
        if pair.source in pairs or pair.target in french:
            misses += 1
            if misses > 100 * wanted + 10_000:
                raise ValueError(
                    f"{wanted} different sentences of {min_length} to {max_length} words are more than the "
                    f"grammar finds (it found {len(pairs)}): ask for fewer or for longer ones"
                )
            continue
        pairs[pair.source] = pair
        french.add(pair.target)
    # The order is random already, and independent of all but the seed.
    drawn = list(pairs.values())
    return Corpus(
        name="grammar",
        train=drawn[valid + test :],
        valid=drawn[:valid],
        test=drawn[valid : valid + test],
        licence="MIT",
        attribution="written by the grammar of this course",
        languages=("en", "fr"),
    )
