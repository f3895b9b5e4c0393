"""The words of the English-French grammar: plain tables, one line a word.

There are 76 nouns, 31 adjectives and 33 verbs. With all their forms, and the small words between them, the
sentences are made of 344 different words of English and 479 of French.

Every word has exactly one translation, in both directions. Nouns whose singular and plural are written alike
(souris, sheep) are left out, and so are verbs whose past looks like their present (put, read), so that each
side of a sentence says all that the other side needs.

English does not mark the gender of most trades. Here each trade has one gender, shared out evenly: "the
judge" is always "la juge", "the nurse" is always "l'infirmier".

A star marks an aspirated h: "le hibou", not "l'hibou".

Kinds of noun, one letter each, say which verbs, adjectives and prepositions a noun goes with:

    p person             o thing              s solid food        u thing to be on or under
    q who may be mine    b container          d drink             e door or window
    r who may be old     w written work       l place to be in    t tree
    k relative           f piece of food      g place to go to
    a animal                                  m building or room
"""

from dataclasses import dataclass

ASPIRATED = {"huit", "onze"}  # and the starred nouns: no elision before these


@dataclass(frozen=True, eq=False, slots=True)  # each word is itself alone, and quick to look up
class Noun:
    """A noun's singular and plural in both languages. `kinds` are the letters explained above."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    kinds: str

    @property
    def mass(self) -> bool:
        """Whether it is measured, not counted: some bread, du pain."""
        return self.kinds in ("s", "d")

    @property
    def ownable(self) -> bool:
        """Whether "my" may stand before it; "ma femme" would be a wife, "ma fille" a daughter."""
        return "q" in self.kinds or ("p" not in self.kinds and "g" not in self.kinds)


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective; `french` is masculine, feminine, masculine plural, feminine plural."""

    english: str
    french: tuple[str, str, str, str]
    before_vowel: str
    kinds: str

    def agreeing(self, feminine: bool, plural: bool, next_word: str = "") -> str:
        """The French form; bel, vieil, nouvel for a masculine singular right before a vowel."""
        if next_word and not feminine and not plural and begins_with_vowel(next_word):
            return self.before_vowel
        return self.french[2 * plural + feminine]


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb's forms. `english` is base, -s form, past; `french` is je, il, ils in the present."""

    english: tuple[str, str, str]
    particle: str
    infinitive: str
    french: tuple[str, str, str]
    participle: str
    moves: bool  # whether its past takes être
    subjects: str
    objects: str = ""
    detail: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Determiner:
    """A determiner; "-" stands for a form that does not exist."""

    english: tuple[str, str]
    french: tuple[str, str, str, str]


@dataclass(frozen=True, eq=False, slots=True)
class Preposition:
    """A preposition, the kinds of noun before it and the kinds after it."""

    english: str
    french: str
    placed: str
    objects: str


def begins_with_vowel(french: str) -> bool:
    """Whether le, de, que ... are elided before this word: a vowel or a mute h, but no aspirated h."""
    return french[0] in "aeiouhâàéèêîôœ" and french not in ASPIRATED


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _english_plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def _noun(english: str, french: str, gender: str, kinds: str) -> Noun:
    one, *many = english.split()
    un, *des = french.replace("*", "").split()
    forms = (un, des[0] if des else un + "s")
    if french.startswith("*"):
        ASPIRATED.update(forms)
    return Noun((one, many[0] if many else _english_plural(one)), forms, gender == "f", kinds)


def _adjective(english: str, french: str, kinds: str) -> Adjective:
    masculine, *rest = french.split()
    if not rest:
        feminine = masculine if masculine.endswith("e") else masculine + "e"
        rest = [feminine, masculine + "s", feminine + "s"]
    before_vowel = rest[3] if len(rest) == 4 else masculine
    return Adjective(english, (masculine, *rest[:3]), before_vowel, kinds)


def _verb(english: str, french: str, *kinds: str) -> Verb:
    base, third, past, *particle = english.split()
    infinitive, *forms = french.split()
    if not forms:  # the regular -er verbs
        stem = infinitive.removesuffix("er")
        forms = [stem + "e", stem + "e", stem + "ent", stem + "é"]
    je, il, ils, participle, *moves = forms
    return Verb(
        (base, third, past), "".join(particle), infinitive, (je, il, ils), participle, bool(moves), *kinds
    )


NOUNS = [
    _noun(*row)
    for row in _rows("""
man men      | homme                | m | pr
woman women  | femme                | f | pr
boy          | garçon               | m | p
girl         | fille                | f | p
child children | enfant             | m | p
king         | roi                  | m | pr
queen        | reine                | f | pr
friend       | amie                 | f | pq
neighbour    | voisin               | m | pq
doctor       | médecin              | m | pq
judge        | juge                 | f | pq
nurse        | infirmier            | m | pq
artist       | artiste              | f | pr
baker        | boulanger            | m | pq
student      | étudiante            | f | pq
actor        | acteur               | m | pr
nephew       | neveu neveux         | m | k
niece        | nièce                | f | k
brother      | frère                | m | k
sister       | sœur                 | f | k
uncle        | oncle                | m | k
aunt         | tante                | f | k
dog          | chien                | m | a
cat          | chat                 | m | a
horse        | cheval chevaux       | m | a
bird         | oiseau oiseaux       | m | a
cow          | vache                | f | a
goat         | chèvre               | f | a
wolf wolves  | loup                 | m | a
owl          | *hibou hiboux        | m | a
hedgehog     | *hérisson            | m | a
donkey       | âne                  | m | a
hat          | chapeau chapeaux     | m | o
coat         | manteau manteaux     | m | o
dress        | robe                 | f | o
clock        | horloge              | f | o
plate        | assiette             | f | o
harp         | *harpe               | f | o
axe          | *hache               | f | o
ladder       | échelle              | f | o
key          | clé                  | f | o
box          | boîte                | f | ob
bag          | sac                  | m | ob
book         | livre                | m | ow
letter       | lettre               | f | ow
story        | histoire             | f | w
apple        | pomme                | f | f
orange       | orange               | f | f
egg          | œuf                  | m | f
cake         | gâteau gâteaux       | m | f
bean         | *haricot             | m | f
bread        | pain                 | m | s
cheese       | fromage              | m | s
soup         | soupe                | f | s
water        | eau                  | f | d
milk         | lait                 | m | d
tea          | thé                  | m | d
house        | maison               | f | lm
garden       | jardin               | m | l
castle       | château châteaux     | m | lgm
church       | église               | f | lgm
school       | école                | f | lgm
museum       | musée                | m | lgm
hotel        | hôtel                | m | lgm
hospital     | hôpital hôpitaux     | m | lgm
village      | village              | m | lg
library      | bibliothèque         | f | lgm
kitchen      | cuisine              | f | lm
forest       | forêt                | f | l
hamlet       | *hameau hameaux      | m | lg
table        | table                | f | u
bed          | lit                  | m | u
chair        | chaise               | f | u
tree         | arbre                | m | t
door         | porte                | f | e
window       | fenêtre              | f | e
""")
]

# Adjectives: English | French masculine and, where not regular, feminine, plurals, form before a vowel |
# kinds of noun. These stand before the noun in both languages.
BEFORE = [
    _adjective(*row)
    for row in _rows("""
small     | petit                                      | pkaowflguet
big       | grand                                      | aolguet
beautiful | beau belle beaux belles bel                | aowlguet
old       | vieux vieille vieux vieilles vieil         | qrkaowlguet
new       | nouveau nouvelle nouveaux nouvelles nouvel | polgue
good      | bon bonne bons bonnes                      | pwfsd
young     | jeune                                      | pka
pretty    | joli                                       | aolgut
huge      | énorme                                     | aoflguet
""")
]

# These follow the noun in French and stand closest to it in English: "the small blue house".
NEAREST = [
    _adjective(*row)
    for row in _rows("""
blue      | bleu                                       | omue
red       | rouge                                      | ofmue
green     | vert                                       | ofuet
black     | noir                                       | aoue
white     | blanc blanche blancs blanches              | aomue
french    | français française français françaises      | pkowsd
italian   | italien italienne italiens italiennes      | pkowsd
""")
]

# These follow the noun in French too.
AFTER = [
    _adjective(*row)
    for row in _rows("""
heavy     | lourd                                      | ou
strange   | étrange                                    | paowlgute
expensive | cher chère chers chères                    | ofsd
empty     | vide                                       | blu
cold      | froid                                      | sdl
dangerous | dangereux dangereuse dangereux dangereuses | a
sad       | triste                                     | w
famous    | célèbre                                    | pwlg
tired     | fatigué                                    | pka
happy     | heureux heureuse heureux heureuses         | pka
shy       | timide                                     | pka
sick      | malade                                     | pka
kind      | gentil gentille gentils gentilles          | pk
rich      | riche                                      | pk
honest    | honnête                                    | pk
""")
]

NEVER_PREDICATE = {"new", "french", "italian"}  # "la maison est nouvelle" would be odd French
STATES = {
    "tired",
    "happy",
    "proud",
    "sick",
    "kind",
    "shy",
    "dangerous",
    "cold",
    "empty",
}  # of today or always

# Verbs: English base form, -s form, past, [particle] | French infinitive and, where not regular, je, il, ils,
# participle, [être where the past takes it] | kinds of subject. A past "-" is not used.
INTRANSITIVE = [
    _verb(*row)
    for row in _rows("""
sleep sleeps slept         | dormir dors dort dorment dormi            | pka
sing sings sang            | chanter                                   | pk
dance dances danced        | danser                                    | pk
work works worked          | travailler                                | pk
run runs ran               | courir cours court courent couru          | pka
arrive arrives arrived     | arriver arrive arrive arrivent arrivé être | pka
fall falls fell            | tomber tombe tombe tombent tombé être     | of
""")
]

# The same, with kinds of object | how the object may be: "de" any, with "pas de" under negation; "un" any,
# but definite under negation; "le" always definite.
TRANSITIVE = [
    _verb(*row)
    for row in _rows("""
see sees saw               | voir vois voit voient vu                  | pka | pkaowfsdlgute | de
hear hears heard           | entendre entends entend entendent entendu | pka | pka           | un
look looks looked for      | chercher                                  | pka | pkao          | un
look looks looked at       | regarder                                  | pka | pkaoue        | un
wait waits waited for      | attendre attends attend attendent attendu | pka | pka           | un
listen listens listened to | écouter                                   | pka | pk            | un
love loves loved           | aimer                                     | pka | pka           | le
help helps helped          | aider                                     | pk  | pk            | un
find finds found           | trouver                                   | pk  | aofg          | de
buy buys bought            | acheter achète achète achètent acheté     | pk  | aofsdu        | de
draw draws drew            | dessiner                                  | pk  | paolgute      | de
write writes wrote         | écrire écris écrit écrivent écrit         | pk  | w             | de
open opens opened          | ouvrir ouvre ouvre ouvrent ouvert         | pk  | be            | un
eat eats ate               | manger                                    | pka | fs            | de
drink drinks drank         | boire bois boit boivent bu                | pk  | d             | de
""")
]

# Verbs whose object is given to somebody.
GIVING = [
    _verb(*row)
    for row in _rows("""
give gives gave            | donner                                    | pk  | aofsd         | de
bring brings brought       | apporter                                  | pk  | ofsd          | de
""")
]

# Verbs whose object hangs on a preposition, given in the last column.
DIRECTED = [
    _verb(*row)
    for row in _rows("""
go goes went               | aller vais va vont allé être              | pk  | g             | to à
come comes came            | venir viens vient viennent venu être      | pk  | g             | from de
speak speaks spoke         | parler                                    | pk  | pka           | to à
""")
]

# Verbs with a "that" clause, in the present only.
SAYING = [
    _verb(*row)
    for row in _rows("""
say says -                 | dire dis dit disent dit                   | pk
think thinks -             | penser                                    | pk
""")
]

# Verbs that come before others: "be tired", "be going to sleep", "must sleep", "want to sleep".
BE, GOING, MUST, WANT = (
    _verb(*row)
    for row in _rows("""
be is was                  | être - est sont été                       | pkaofsdlguetw
be is -                    | aller vais va vont allé                   | pka
must must -                | devoir dois doit doivent dû               | pka
want wants -               | vouloir veux veut veulent voulu           | pka
""")
)

# Determiners: English singular and plural | French masculine, feminine, their plurals. In this notation, here
# and below, words after a tilde exist on one side only, or attach loosely to the other side's words.
DETERMINERS = {
    row[0].strip("- ").split()[0]: Determiner(tuple(row[0].split()), tuple(row[1:]))
    for row in _rows("""
the the     | le      | la      | les         | les
a some      | un      | une     | des         | des
this these  | ce      | cette   | ces         | ces
every -     | chaque  | chaque  | -           | -
- many      | -       | -       | beaucoup ~de | beaucoup ~de
my my       | mon     | ma      | mes         | mes
our our     | notre   | notre   | nos         | nos
your your   | votre   | votre   | vos         | vos
his his     | son     | sa      | ses         | ses
her her     | son     | sa      | ses         | ses
its its     | son     | sa      | ses         | ses
their their | leur    | leur    | leurs       | leurs
""")
}

NUMERALS = [
    tuple(row[0].split())
    for row in _rows("""
two deux
three trois
four quatre
five cinq
six six
eight huit
ten dix
eleven onze
twelve douze
""")
]

# Prepositions of place: English | French | kinds of noun placed | kinds of the noun that follows.
PLACING = [
    Preposition(*row)
    for row in _rows("""
in             | dans     | pkaofsdu   | l
on             | sur      | aofsd      | u
under          | sous     | aof        | ut
behind         | derrière | pkaofutlg  | lute
~in front ~of  | devant   | pkaofutlg  | lute
near           | près ~de | pkaofsdutlge | lutepk
""")
]

WITH = Preposition("with", "avec", "pk", "pk")

# Objects whose gender is not said
LISTENERS = [("me", "me"), ("us", "nous"), ("you", "vous")]
