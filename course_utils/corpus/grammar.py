"""An English-French grammar that writes sentence pairs with gold word alignments.

The sentences have what makes alignment interesting: adjectives on either side of the noun, agreement in
gender and number, elision and contraction, negation around the verb, pronouns that move before it, one word
for several. The words stand in `lexicon.py`, the algebra of two-language phrases in `phrases.py`.

**Each side determines the other.** No English sentence has two French translations here, nor the reverse:

- Words translate one to one.
- "his", "her", "its" (all son, sa, ses) belong to the subject of their own clause; "him", "her", "it",
  "them" stand for the simple object just before; "he", "she", "it", "they" for the subject just before.
  "who" and "that" follow their noun directly.
- A predicate that holds a relative or a "that" clause ends there: nothing after it could belong to either
  verb. Two subjects are joined only at the start of a sentence, where nothing before "and" could claim one.
- Nothing agrees with what is not said. In the past no pronoun and no "that" stands for a direct object, so
  only participles with être agree, with their subject; I, me, us and you never meet a word that would show
  gender.

**Gold links.** Words that express one idea are linked, surely, or possibly if one of them does so loosely:

- Sure: content words, pronouns, determiners (the - le, a - un, some - des, any - de), numerals,
  conjunctions, prepositions, relative words (who - qui, where - où). A contraction expresses both its
  words: of - du, the - du.
- Negation: not - pas, never - jamais, longer - plus are sure; ne is possible with each of these English
  words.
- The auxiliaries of one side (does, did; is before going; a, est) are possible with the verb that they
  help, does and did also with ne ... pas, and "to" with the verbs around it.
- In a set phrase one word is sure, the rest possible: looks - cherche, for - cherche possible; front -
  devant, in and of possible; near - près, de possible; because - parce, que possible; likewise while -
  pendant, many - beaucoup, longer - plus, tonight - soir, whose - dont (and the article after it); "de la
  soupe": some - de, la possible.

There are more than 10**9 sentences: `tests/corpus/test_grammar.py` counts that many of one pattern alone,
that of "the sick king sees the blue house near the old tree ."
"""

import itertools
import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from course_utils.corpus import lexicon
from course_utils.corpus.lexicon import BE, GOING, MUST, WANT, Adjective, Noun, Preposition, Verb
from course_utils.corpus.pairs import Corpus, Pair
from course_utils.corpus.phrases import EMPTY, Phrase, finished, new_idea, phrase

# ---- Verbs ----


class Subject(NamedTuple):
    """What the words that agree with a noun have to know of it."""

    plural: bool
    feminine: bool
    kinds: str
    described: bool = False  # by an adjective
    specific: bool = True  # negation beside it can be read in one way only, unlike "every dog does not"
    first: bool = False  # I

    @property
    def human(self) -> bool:
        return "p" in self.kinds or "k" in self.kinds

    @property
    def animate(self) -> bool:
        return self.human or "a" in self.kinds

    @property
    def pronoun(self) -> tuple[str, str]:
        """he, she, it or they, with il, elle, ils or elles."""
        french = "elle" if self.feminine else "il"
        if self.plural:
            return "they", french + "s"
        return ("she" if self.feminine else "he") if self.human else "it", french

    @property
    def object_pronoun(self) -> tuple[str, str]:
        english = {"he": "him", "she": "her", "it": "it", "they": "them"}[self.pronoun[0]]
        return english, "les" if self.plural else "la" if self.feminine else "le"

    @property
    def possessive(self) -> str:
        return {"he": "his", "she": "her", "it": "its", "they": "their"}[self.pronoun[0]]

    @property
    def owner(self) -> "Subject | None":
        """Whom his, her, its, their belong to beside this subject: nobody beside I or a thing."""
        return self if self.animate and not self.first else None


_I = Subject(plural=False, feminine=False, kinds="p", first=True)
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
_AVOIR, _ETRE = ("ai", "a", "ont"), ("-", "est", "sont")


class Shape(NamedTuple):
    """How a verb is used: the mode is present, past, going ("is going to"), must or want."""

    mode: str = "present"
    adverb: str = ""

    @property
    def negative(self) -> bool:
        return self.adverb in _NEGATIVE

    @property
    def moment(self) -> bool:
        """Whether it is about some moments, not about what lasts: "never", "is going to"."""
        return self.mode not in ("present", "past") or self.adverb not in ("", "not", "no longer")


def _present(forms: Sequence[str], subject: Subject) -> str:
    """The present of a French verb, given as je, il, ils."""
    return forms[0 if subject.first else 1 + subject.plural]


def _finite(verb: Verb, subject: Subject, past: bool) -> str:
    """The English form that agrees with the subject."""
    base, third, before = verb.english
    if base == "be":
        if past:
            return "were" if subject.plural else "was"
        return "am" if subject.first else "are" if subject.plural else "is"
    return before if past else base if subject.plural or subject.first else third


def conjugate(verb: Verb, shape: Shape, subject: Subject, clitic: Phrase = EMPTY) -> Phrase:
    """The verb with what stands around it; an object pronoun may be given as `clitic`.

    English: [does] [not] see [it]. French: [ne] [la] voit [pas], n'a [pas] vu, [ne] veut [pas] [la] voir.
    """
    leading = _LEADING.get(shape.mode)
    finite = leading or verb
    main = (new_idea(),)
    first = (new_idea(),) if leading else main
    around = phrase(*_ADVERBS[shape.adverb]) if shape.adverb else EMPTY
    negation = around.french[0][1] if shape.negative else ()
    past = shape.mode == "past"

    form = _finite(finite, subject, past)
    if finite is BE or finite is MUST:
        english = ((form, first, ()), *around.english)
    elif finite is GOING:
        english = ((form, (), first), *around.english, ("going", first, ()))
    elif shape.adverb == "not":
        do = "did" if past else "do" if subject.plural or subject.first else "does"
        english = ((do, (), first + negation), *around.english, (finite.english[0], first, ()))
    else:
        english = (*around.english, (form, first, ()))
    if leading:
        to = () if leading is MUST else (("to", (), first + main),)
        english += (*to, (verb.english[0], main, ()))
    if verb.particle:
        english += ((verb.particle, (), main),)

    french = (("ne", (), negation),) if negation else ()
    if leading:
        form = _present(leading.french, subject)
        french += ((form, first, ()), *around.french, *clitic.french, (verb.infinitive, main, ()))
    elif past and verb is BE:
        french += (("étaient" if subject.plural else "était", main, ()), *around.french)
    elif past:
        helper = _present(_ETRE if verb.moves else _AVOIR, subject)
        ending = "e" * subject.feminine + "s" * subject.plural if verb.moves else ""
        french += (*clitic.french, (helper, (), main), *around.french, (verb.participle + ending, main, ()))
    else:
        french += (*clitic.french, (_present(verb.french, subject), main, ()), *around.french)
    return Phrase(english + clitic.english, french)


# ---- Which words go together: options, the usual ones repeated ----

_PLAIN = [("present", "", 12), ("present", "not", 4), *(("present", adverb, 1) for adverb in _ADVERBS)]
_SHAPES = {  # by the time of a clause; "plain" is the present without a leading verb
    "plain": _PLAIN,
    "present": _PLAIN
    + [(mode, adverb, often) for mode in _LEADING for adverb, often in (("", 2), ("not", 1))],
    "past": [("past", "", 9), ("past", "not", 3), ("past", "never", 1), ("past", "often", 1)],
}


@cache
def _length(verb: Verb, shape: Shape) -> int:
    return conjugate(verb, shape, _ANYBODY).size


@cache
def _shapes(verb: Verb, time: str, room: int, animate: bool, specific: bool) -> list[Shape]:
    """How a verb can be used in at most `room` English words."""
    options = [Shape(mode, adverb) for mode, adverb, often in _SHAPES[time] for _ in range(often)]
    return [
        shape
        for shape in options
        if _length(verb, shape) <= room
        if animate or not shape.moment
        if specific or not shape.negative
    ]


def _fit(kinds: str, others: str) -> bool:
    return not set(kinds).isdisjoint(others)


@cache
def _nouns(kinds: str) -> list[Noun]:
    return [noun for noun in lexicon.NOUNS if _fit(noun.kinds, kinds)]


@cache
def _adjectives(kinds: str) -> tuple[list[Adjective], list[Adjective], list[Adjective]]:
    """Adjectives for these kinds of noun: before it in French, nearest to it in English, others."""
    tables = lexicon.BEFORE, lexicon.NEAREST, lexicon.AFTER
    before, nearest, after = ([a for a in table if _fit(a.kinds, kinds)] for table in tables)
    return before, nearest or [a for a in after if a.english in lexicon.STATES], after


@cache
def _predicative(kinds: str, moment: bool, described: bool) -> list[Adjective]:
    """Adjectives of which one says that something "is" so, at some moment or for good.

    Of something that is `described` by an adjective already, none that contradicts it: no white book is red.
    """
    before, nearest, after = _adjectives(kinds)
    options = [a for a in before + nearest + after if a.english not in lexicon.NEVER_PREDICATE]
    if moment and any(a.english in lexicon.STATES for a in options):
        return [a for a in options if a.english in lexicon.STATES]
    return after if described and len(after) > 1 else options


@cache
def _verbs(table: str, kinds: str) -> list[Verb]:
    """The verbs of a table that have a subject of these kinds."""
    return [verb for verb in getattr(lexicon, table) if _fit(verb.subjects, kinds)]


@cache
def _verbs_taking(kinds: str) -> list[Verb]:
    """Transitive verbs that have an object of these kinds."""
    return [verb for verb in lexicon.TRANSITIVE if _fit(verb.objects, kinds)]


@cache
def _prepositions(kinds: str, room: int) -> list[Preposition]:
    """Prepositions that say where something of these kinds is, with room left for two more words."""
    return [
        preposition
        for preposition in lexicon.PLACING
        if _fit(preposition.placed, kinds) and len(preposition.english.split()) + 2 <= room
    ]


_DEFINITE = {"the": 6, "this": 2, "my": 1, "our": 1, "your": 1, "owner": 3}
_SCOPES = {  # which determiners a noun may have
    "any": _DEFINITE | {"a": 6, "every": 1, "many": 1, "number": 2},
    "definite": _DEFINITE,
    "negated": _DEFINITE | {"a": 6},  # "does not see a dog", "pas de chien"
    "after de": _DEFINITE | {"a": 4, "every": 1, "number": 2},
    "the": {"the": 1},
}


@cache
def _determiners(scope: str, plural: bool, mass: bool, ownable: bool, owned: bool) -> list[str]:
    """Names of determiners that may stand before a noun: "my" if `ownable`, "his" if there is an owner."""
    banned = {"every"} if plural else {"many", "number"}
    if mass:
        banned.add("every")
    if scope == "after de" and (plural or mass):
        banned.add("a")  # English would say "some", but French "de" swallows "des" and "du"
    if not ownable:
        banned.update(("my", "our", "your", "owner"))
    if not owned:
        banned.add("owner")
    return [name for name, often in _SCOPES[scope].items() if name not in banned for _ in range(often)]


_FRAMES = (
    ("intransitive", 1, 3),
    ("being", 2, 3),
    ("transitive", 2, 8),
    ("directed", 4, 2),
    ("giving", 6, 2),
)


@cache
def _frames(size: int, kinds: str, closing: int, time: str) -> list[str]:
    """The methods that may write a predicate of this many words."""
    frames = [
        name
        for name, least, often in _FRAMES
        if size >= least and (name == "being" or _verbs(name.upper(), kinds))
        for _ in range(often)
    ]
    if size >= 5 and closing > 1 and time != "past" and _verbs("SAYING", kinds):
        frames += ["saying"] * 2
    return frames


_HERE = ("here", "ici")
_LATER = [("tomorrow", "demain"), ("tonight", "~ce soir"), _HERE]
_TIMES = {
    "present": [("now", "maintenant"), _HERE],
    "past": [("yesterday", "hier"), _HERE],
    "going": _LATER,
    "must": _LATER,
    "want": _LATER,
}

_AND, _BUT = ("and", "et"), ("but", "mais")
_BECAUSE, _WHEN = ("because", "parce ~que"), ("when", "quand")
_BESIDE_PLAIN = [("while", "pendant ~que"), ("if", "si"), _WHEN]  # "is going to" would be odd beside these
_JOINTS = {
    "present": [*[_AND] * 4, _BUT, _BUT, _BECAUSE, *_BESIDE_PLAIN],
    "past": [*[_AND] * 4, _BUT, _BUT, _BECAUSE, _WHEN],
}
_COMMA = (",", ",")


# ---- Sentences ----


class NounPhrase(NamedTuple):
    """A noun phrase, and the noun as a subject."""

    phrase: Phrase
    subject: Subject


class _Writer:
    """Writes phrases of exactly the wished number of English words, with all draws from one seed.

    Throughout, `size` counts English words, `time` is a key of `_SHAPES`, `closing` is how many relative or
    "that" clauses, one in the other, may end the phrase, `owner` whom "his", "her", "its", "their" mean.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random
        self.used = set()  # words drawn in this clause, and what joins the clauses

    # Draws

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def length(self, low: int, high: int) -> int:
        """The length of a sentence: short ones are frequent, so that each length has about as many words."""
        return int(low * ((high + 1) / low) ** self.random())

    def two(self, options: Sequence) -> tuple:
        first = self.fresh(options)
        return first, self.fresh([option for option in options if option is not first])

    def fresh(self, options: Sequence):
        """One of the options, not drawn in this clause yet if that is easily had."""
        for _ in range(6):
            option = options[int(self.random() * len(options))]
            if option not in self.used:
                self.used.add(option)
                break
        return option

    def noun(self, kinds: str) -> Noun:
        return self.fresh(_nouns(kinds))

    def shape(self, verb: Verb, time: str, room: int, subject: Subject) -> Shape | None:
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
        modifier, least = self.pick(modifiers)
        head_size = min(size - least, 2 if size < 6 else self.between(2, 3))
        if modifier == "of":
            scope = "the"
        elif scope == "negated":
            scope = "definite"
        head, subject = self.simple(noun, head_size, scope, owner, modified=True)
        size -= head_size
        if modifier == "of":
            return NounPhrase(head + self.belonging(size, noun, owner, closing), subject)
        if modifier == "place":
            return NounPhrase(head + self.place(size, noun.kinds, owner, closing), subject)
        return NounPhrase(head + self.relative(size, noun, subject, closing - 1), subject)

    def modifiers(self, noun: Noun, size: int, closing: int) -> list[tuple[str, int]]:
        """What may follow a noun, with the fewest words it needs."""
        least = 2 if noun.kinds[0] in "pka" else 4
        modifiers = [("relative", least)] * 3 if closing and size >= least + 2 else []
        if size >= 5 and noun.kinds[0] not in "ptsd":
            modifiers += [("of", 3)] * 2
        if size >= 5 and _prepositions(noun.kinds, 3):
            modifiers += [("place", 3)]
        return modifiers

    def simple(
        self, noun: Noun, size: int, scope: str = "any", owner: Subject | None = None, modified: bool = False
    ) -> NounPhrase:
        """Determiner, numeral, adjectives, noun: two to five words."""
        plural, counted, front, back = self.filling(noun, size - 2)
        if counted and scope != "the":
            scope = "definite"
        owned = owner is not None and (owner.human or noun.kinds[0] in "fsu")
        name = self.pick(_determiners(scope, plural, noun.mass, noun.ownable and not modified, owned))
        described = front is not None or len(back) > 0
        subject = Subject(plural, noun.feminine, noun.kinds, described, name in _DEFINITE and not counted)
        written = self.determiner(name, subject, noun.mass, scope == "negated", bool(front), owner)
        if counted and name == "the" and self.chance(0.4):
            written = phrase("all", "toutes" if noun.feminine else "tous") + written
        elif counted:
            written += phrase(*self.pick(lexicon.NUMERALS))
        word = phrase(noun.english[plural], noun.french[plural])
        if front:
            written += self.said_of(front, subject, noun.french[plural])
        if not back:
            return NounPhrase(written + word, subject)
        return NounPhrase(written + self.joined(back, subject).crossed(word), subject)

    def filling(self, noun: Noun, size: int) -> tuple[bool, bool, Adjective | None, Sequence[Adjective]]:
        """What `size` words beside a noun say: is it plural, is it counted, adjectives before and after."""
        before, nearest, after = _adjectives(noun.kinds)
        plural = not noun.mass and self.chance(0.35)
        if size == 3 and len(after) > 1 and (noun.mass or self.chance(0.6)):
            return plural, False, None, self.two(after)
        plural = plural or size == 3
        counted = plural and size > 0 and self.chance(1 if size == 3 else 0.25)
        if size - counted == 0:
            return plural, counted, None, ()
        if size - counted == 2:
            return plural, counted, self.fresh(before), (self.fresh(nearest),)
        adjective = self.fresh(before + nearest + after)
        return (
            (plural, counted, adjective, ()) if adjective in before else (plural, counted, None, (adjective,))
        )

    def determiner(
        self,
        name: str,
        noun: Subject,
        mass: bool,
        negated: bool,
        adjective_follows: bool,
        owner: Subject | None,
    ) -> Phrase:
        if name == "number":
            return phrase(*self.pick(lexicon.NUMERALS))
        if name == "a" and negated:
            return phrase("any" if noun.plural or mass else "a", "de")
        if name == "a" and mass:
            return phrase("some", "de ~la" if noun.feminine else "de ~le")
        if name == "a" and noun.plural and adjective_follows:
            return phrase("some", "de")
        row = lexicon.DETERMINERS[owner.possessive if name == "owner" else name]
        return phrase(row.english[noun.plural], row.french[2 * noun.plural + noun.feminine])

    def said_of(self, adjective: Adjective, noun: Subject, following: str = "") -> Phrase:
        """The adjective, agreeing with a noun, which in French may follow it directly."""
        return phrase(adjective.english, adjective.agreeing(noun.feminine, noun.plural, following))

    def joined(self, adjectives: Sequence[Adjective], noun: Subject) -> Phrase:
        """One adjective, or two with "and"."""
        first, *rest = (self.said_of(adjective, noun) for adjective in adjectives)
        return first + phrase("and", "et") + rest[0] if rest else first

    def belonging(self, size: int, noun: Noun, owner: Subject | None, closing: int) -> Phrase:
        """The door "of the house", the book "of the king"."""
        preposition = Preposition("of", "de", noun.kinds, "l" if noun.kinds == "e" else "pk")
        return self.led_by(preposition, size, owner, closing)

    def place(self, size: int, kinds: str, owner: Subject | None, closing: int) -> Phrase:
        """Where something of these kinds is: "in the garden"."""
        return self.led_by(self.fresh(_prepositions(kinds, size)), size, owner, closing)

    def led_by(self, preposition: Preposition, size: int, owner: Subject | None, closing: int) -> Phrase:
        """A preposition and its noun phrase."""
        written = phrase(preposition.english, preposition.french)
        scope = "after de" if preposition.french.endswith("de") else "any"
        return (
            written + self.noun_phrase(size - written.size, preposition.objects, scope, owner, closing).phrase
        )

    # Relative clauses

    def relative(self, size: int, noun: Noun, subject: Subject, closing: int) -> Phrase:
        """A relative clause, right after its noun: "who sings", "that the king sees"."""
        subject = subject._replace(specific=True)
        options = []
        if subject.animate or size == 4 or _prepositions(noun.kinds, 3):
            options += ["subject"] * 3
        if size >= 4:
            options += ["object"] * 3 + ["where"] * 3 * ("l" in noun.kinds) + ["whose"] * ("p" in noun.kinds)
        option = self.pick(options)
        if option == "object":
            return self.object_relative(size, noun, closing)
        if option == "where":
            return phrase("where", "où") + self.clause(size - 1, "plain", closing=0)
        if option == "whose":
            return self.whose(size)
        time = "past" if self.chance(0.2) else "present"
        link = phrase("who" if subject.human else "that", "qui")
        return link + self.predicate(size - 1, subject, time, closing)

    def object_relative(self, size: int, noun: Noun, closing: int) -> Phrase:
        """That the king sees."""
        while True:
            verb = self.fresh(_verbs_taking(noun.kinds))
            who = self.speaker_or(lambda: self.simple(self.noun("pk"), self.between(2, min(size - 2, 3))))
            room = size - 1 - who.phrase.size
            shape = self.shape(verb, "present", room, who.subject)
            rest = shape and self.adjunct(room - _length(verb, shape), who.subject, shape, "p", closing)
            if rest:
                return phrase("that", "que") + who.phrase + conjugate(verb, shape, who.subject) + rest

    def whose(self, size: int) -> Phrase:
        """Whose sister sings, dont la sœur chante."""
        noun = self.noun("k")
        subject = Subject(plural=False, feminine=noun.feminine, kinds=noun.kinds)
        written = phrase("whose", "dont ~la" if noun.feminine else "dont ~le")
        if size > 4 and self.chance(0.4):
            written += self.said_of(self.pick(_adjectives(noun.kinds)[0]), subject, noun.french[0])
        written += phrase(noun.english[0], noun.french[0])
        return written + self.predicate(size - written.size, subject, "present", closing=0)

    # Predicates: each kind returns None where what it drew does not fill the size

    def predicate(self, size: int, subject: Subject, time: str, closing: int = 2) -> Phrase:
        """A verb and all that belongs to it."""
        frames = _frames(size, subject.kinds, closing, time)
        while True:
            written = getattr(self, self.pick(frames))(size, subject, time, closing)
            if written:
                return written

    def intransitive(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        verb = self.fresh(_verbs("INTRANSITIVE", subject.kinds))
        shape = self.shape(verb, time, size, subject)
        if not shape or (subject.first and verb.moves and time == "past"):
            return None
        rest = self.adjunct(size - _length(verb, shape), subject, shape, subject.kinds, closing)
        return rest and conjugate(verb, shape, subject) + rest

    def being(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Is tired, is under the table."""
        shape = self.shape(BE, time, size - 1, subject)
        if subject.first or not shape or shape.mode == "want":
            return None
        verb = conjugate(BE, shape, subject)
        rest = size - verb.size
        moment = shape.moment or time == "plain"
        if rest >= 3 and shape.mode in ("present", "past") and self.chance(0.6):
            where = self.adjunct(rest, subject, shape, subject.kinds, closing, company=0)
            return where and verb + where
        if rest == 3:
            pair = _predicative(subject.kinds, moment, described=True)
            return verb + self.joined(self.two(pair), subject) if len(pair) > 1 else None
        if rest > 1 and not subject.animate:
            return None
        adjective = self.fresh(_predicative(subject.kinds, moment or rest > 1, subject.described))
        more = self.adjunct(rest - 1, subject, shape, subject.kinds, closing)
        return more and verb + self.said_of(adjective, subject) + more

    def transitive(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Sees the house, sees me."""
        verb = self.fresh(_verbs("TRANSITIVE", subject.kinds))
        if time != "past" and self.chance(0.1 if size > 2 else 1) and _fit(verb.objects, "pk"):
            return self.with_pronoun(verb, self.listener(subject), size, subject, time, closing)
        shape = self.shape(verb, time, size - 2, subject)
        if not shape:
            return None
        rest = self.objects(verb, size - _length(verb, shape), subject, shape, closing)
        return conjugate(verb, shape, subject) + rest

    def with_pronoun(
        self, verb: Verb, pronoun: Phrase, size: int, subject: Subject, time: str, closing: int
    ) -> Phrase | None:
        """Sees it, la voit."""
        shape = self.shape(verb, time, size - 1, subject)
        rest = shape and self.adjunct(size - 1 - _length(verb, shape), subject, shape, "p", closing)
        return conjugate(verb, shape, subject, pronoun) + rest if rest else None

    def listener(self, subject: Subject) -> Phrase:
        """me, us or you as an object; never "I see me"."""
        return phrase("you", "vous") if subject.first else phrase(*self.pick(lexicon.LISTENERS))

    def objects(self, verb: Verb, size: int, subject: Subject, shape: Shape, closing: int) -> Phrase:
        """One object, or two joined by "and", or one with a time, a place or company."""
        scope = self.scope(verb, shape)
        if 5 <= size <= 7 and scope == "any" and self.chance(0.15):
            first = self.between(2, size - 3) if size < 7 else 3
            one = self.simple(self.noun(verb.objects), first, scope, subject.owner).phrase
            other = self.simple(self.noun(verb.objects), size - 1 - first, scope, subject.owner).phrase
            return one + phrase("and", "et") + other
        aside = 0
        if size >= 5 and self.chance(0.4):
            aside = self.between(3, size - 2)
        elif size >= 3 and self.chance(0.1):
            aside = 1
        if not aside:
            return self.noun_phrase(size, verb.objects, scope, subject.owner, closing).phrase
        thing = self.noun_phrase(size - aside, verb.objects, scope, subject.owner, closing=0).phrase
        return thing + self.adjunct(aside, subject, shape, "p", closing)

    def scope(self, verb: Verb, shape: Shape) -> str:
        """Which determiners the object of a verb may have."""
        if verb.detail == "le":
            return "definite"
        if shape.negative:
            return "negated" if verb.detail == "de" else "definite"
        return "any"

    def directed(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Goes to the village, speaks to the king."""
        verb = self.fresh(_verbs("DIRECTED", subject.kinds))
        shape = self.shape(verb, time, size - 3, subject)
        if not shape or (subject.first and verb.moves and time == "past"):
            return None
        preposition = Preposition(*verb.detail.split(), placed="", objects=verb.objects)
        rest = self.led_by(preposition, size - _length(verb, shape), subject.owner, closing)
        return conjugate(verb, shape, subject) + rest

    def giving(self, size: int, subject: Subject, time: str, closing: int) -> Phrase | None:
        """Gives the book to the king, gives me the book."""
        verb = self.fresh(_verbs("GIVING", subject.kinds))
        shape = self.shape(verb, time, size - 5, subject)
        if not shape:
            return None
        rest = size - _length(verb, shape)
        if self.chance(0.25):
            given = conjugate(verb, shape, subject, self.listener(subject))
            return given + self.objects(verb, rest - 1, subject, shape, closing)
        part = self.between(2, min(rest - 3, 4))
        thing = self.noun_phrase(part, verb.objects, self.scope(verb, shape), subject.owner, closing=0).phrase
        person = self.led_by(Preposition("to", "à", "", "pk"), rest - part, subject.owner, closing)
        return conjugate(verb, shape, subject) + thing + person

    def saying(self, size: int, subject: Subject, time: str, closing: int) -> Phrase:
        """Says that she is tired."""
        verb = self.fresh(_verbs("SAYING", subject.kinds))
        written = conjugate(verb, Shape(), subject) + phrase("that", "que")
        if subject.first or self.chance(0.6):
            return written + self.clause(size - 2, "present", closing - 1)
        return written + phrase(*subject.pronoun) + self.predicate(size - 3, subject, "present", closing - 1)

    def adjunct(
        self, size: int, subject: Subject, shape: Shape, kinds: str, closing: int, company: float = 0.25
    ) -> Phrase | None:
        """What may end a predicate: nothing, a time, a place or company. None where nothing fits."""
        if size == 0:
            return EMPTY
        if size == 1:
            return phrase(*self.fresh(_TIMES[shape.mode] if shape.adverb in ("", "not") else [_HERE]))
        if size >= 3 and subject.human and self.chance(company):
            return self.led_by(lexicon.WITH, size, subject.owner, closing)
        return self.place(size, kinds, subject.owner, closing) if _prepositions(kinds, size) else None

    # Clauses

    def speaker_or(self, other) -> NounPhrase:
        """Now and then "I", else what the other function writes."""
        return NounPhrase(phrase("i", "je"), _I) if self.chance(0.08) else other()

    def clause(self, size: int, time: str, closing: int = 2) -> Phrase:
        """A subject and its predicate, or two predicates."""
        part = min(size - 1, self.between(2, size // 2 if closing and size > 8 else 3))
        kinds = "pk" if self.chance(0.65) else "a" if size - part < 4 or self.chance(0.5) else "ofsdlute"
        who = self.speaker_or(lambda: self.noun_phrase(part, kinds, closing=min(closing, 1)))
        return who.phrase + self.predicates(size - who.phrase.size, who.subject, time, closing)

    def predicates(self, size: int, subject: Subject, time: str, closing: int) -> Phrase:
        """One predicate, or two joined by "and" or "but"."""
        if size < 6 or not subject.animate or subject.first or self.chance(0.7):
            return self.predicate(size, subject, time, closing)
        if time != "past" and self.chance(0.6):
            written = self.doing_both(size, subject, time)
            if written:
                return written
        first = self.between(2, size - 3)
        one = self.predicate(first, subject, time, closing=0)
        joint = _BUT if _BUT not in self.used and self.chance(0.3) else _AND
        self.used.add(joint)
        return one + phrase(*joint) + self.predicate(size - 1 - first, subject, time, closing)

    def doing_both(self, size: int, subject: Subject, time: str) -> Phrase | None:
        """Two verbs with one object: sees the house and buys it."""
        verb, other = self.two(_verbs("TRANSITIVE", subject.kinds))
        kinds = "".join(sorted(set(verb.objects) & set(other.objects)))
        if not kinds:
            return None
        scope = "definite" if "le" in (verb.detail, other.detail) else "any"
        thing = self.simple(self.noun(kinds), self.between(2, 3), scope, subject.owner)
        first = conjugate(verb, Shape(), subject) + thing.phrase + phrase("and", "et")
        pronoun = phrase(*thing.subject.object_pronoun)
        rest = self.with_pronoun(other, pronoun, size - first.size, subject, time, closing=0)
        return rest and first + rest

    def twin(self, size: int, time: str) -> Phrase:
        """Two clauses, the second about the subject of the first: the girl sings because she is happy."""
        joint = self.fresh(_JOINTS["past" if time == "past" else "present"])
        if time != "past" and joint in _BESIDE_PLAIN:
            time = "plain"
        head = self.simple(self.noun("pka"), self.between(2, min(size - 4, 4)))
        size -= head.phrase.size + 2
        part = self.between(1, min(size - 1, 3))
        first = None
        while not first:  # a predicate that names nothing else, so that the pronoun can only mean the subject
            frame = self.intransitive if part > 2 or self.chance(0.6) else self.being
            first = frame(part, head.subject, time, closing=0)
        second = self.predicate(size - part, head.subject, time)
        return head.phrase + first + phrase(*joint) + phrase(*head.subject.pronoun) + second

    def together(self, size: int, time: str) -> Phrase:
        """Two subjects of one predicate: the king and the queen are happy."""
        one, other = (self.simple(self.noun("pk"), self.between(2, 3)) for _ in range(2))
        feminine = one.subject.feminine and other.subject.feminine
        both = Subject(plural=True, feminine=feminine, kinds="p", specific=False)
        who = one.phrase + phrase("and", "et") + other.phrase
        return who + self.predicates(size - who.size, both, time, closing=2)

    # Sentences

    def sentence(self, size: int) -> Phrase:
        """One clause or a chain of clauses, and the full stop."""
        time = "past" if self.chance(0.3) else "present"
        parts = self.parts(size - 1)
        joints = self.joints(len(parts) - 1, time)
        written = EMPTY
        for place, part in enumerate(parts):
            beside = joints[max(place - 1, 0) : place + 1]
            plain = time == "present" and any(joint in _BESIDE_PLAIN for joint in beside)
            self.used = set(joints)
            if place > 0:
                written += phrase(*joints[place - 1])
            if part >= 7 and self.chance(0.25):
                write = self.twin
            elif part >= 8 and place == 0 and self.chance(0.12):  # later, "and" before it could be misread
                write = self.together
            else:
                write = self.clause
            written += write(part, "plain" if plain else time)
        return written + phrase(".", ".")

    def parts(self, size: int) -> list[int]:
        """The sizes of the clauses of a sentence, which are joined by one word each."""
        count = max(1, round(size / (6 + 6 * self.random())))
        spare = size - (count - 1) - 4 * count
        if spare < 0:
            return [size]
        cuts = sorted(self.between(0, spare) for _ in range(count - 1))
        return [4 + high - low for low, high in itertools.pairwise([0, *cuts, spare])]

    def joints(self, count: int, time: str) -> list[tuple[str, str]]:
        """Conjunctions, all but "and" once a sentence, and commas: "one, another and a third"."""
        options = _JOINTS[time]
        chosen: list[tuple[str, str]] = []
        for _ in range(count):  # from the last to the first
            if chosen and chosen[-1] in (_AND, _COMMA) and self.chance(0.4):
                chosen.append(_COMMA)
                continue
            joint = self.pick(options)
            if joint != _AND:
                options = [option for option in options if option != joint]
            chosen.append(joint)
        return chosen[::-1]

    def pair(self, size: int) -> Pair:
        """A sentence, or where it is short perhaps only a noun phrase."""
        self.used.clear()
        if size == 3 or (size < 9 and self.chance(0.3)):
            return finished(self.noun_phrase(size, "pkaowflgutes").phrase)
        return finished(self.sentence(size))


# ---- What the course uses ----

SHORTEST, LONGEST = 3, 60


def _check_lengths(low: int, high: int) -> None:
    if not SHORTEST <= low <= high <= LONGEST:
        raise ValueError(
            f"lengths from {low} to {high} English words: the grammar writes {SHORTEST} to {LONGEST}, "
            "and the least must not be above the most"
        )


def sample_length(length: int, *, count: int, seed: int) -> list[Pair]:
    """`count` English-French pairs of exactly `length` English words, the full stop counted as one.

    Raises ValueError for a length outside 3 to 60.
    """
    return sample(count, seed=seed, min_length=length, max_length=length)


def sample(count: int, *, seed: int, min_length: int = 3, max_length: int = 60) -> list[Pair]:
    """`count` English-French pairs of `min_length` to `max_length` English words.

    A length is drawn in inverse proportion to itself: many short sentences and some long ones, as in real
    text, with about as many words in the sentences of each length. The same seed gives the same pairs. Short
    sentences may come up more than once. Raises ValueError for lengths outside 3 to 60.
    """
    _check_lengths(min_length, max_length)
    writer = _Writer(seed)
    return [writer.pair(writer.length(min_length, max_length)) for _ in range(count)]


def corpus(
    *, train: int, valid: int, test: int, seed: int = 0, min_length: int = 3, max_length: int = 50
) -> Corpus:
    """Pairs that all differ, on both sides, so that no sentence of one set is in another.

    Lengths are spread as in `sample`, but for the shortest, of which there may not be enough. Raises
    ValueError where there are not enough sentences of all these lengths together.
    """
    _check_lengths(min_length, max_length)
    writer = _Writer(seed)
    wanted = train + valid + test
    drawn: list[Pair] = []
    sources: set[tuple[str, ...]] = set()
    targets: set[tuple[str, ...]] = set()
    known = 0
    while len(drawn) < wanted:
        pair = writer.pair(writer.length(min_length, max_length))
        if pair.source not in sources and pair.target not in targets:
            drawn.append(pair)
            sources.add(pair.source)
            targets.add(pair.target)
            continue
        known += 1
        if known > wanted + 10_000:
            raise ValueError(
                f"{wanted} different sentences of {min_length} to {max_length} words are too many: only "
                f"{len(drawn)} were found; ask for fewer or for longer ones"
            )
    return Corpus(
        name="grammar",
        train=drawn[valid + test :],
        valid=drawn[:valid],
        test=drawn[valid : valid + test],
        licence="MIT",
        attribution="the grammar of this course",
        languages=("en", "fr"),
    )
