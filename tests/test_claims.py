"""Claims are recorded as they are, refused when malformed, and read back from notebooks."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.claims import Claim, ClaimError, claim, read

RIGHT = {"id": "04.5", "sentence": "Attention holds at 50 words.", "holds": True, "measured": "86 BLEU"}


def notebook(path: Path, *claims: dict) -> Path:
    outputs = [
        {"output_type": "display_data", "data": {"text/plain": "…"}, "metadata": {"claim": entry}}
        for entry in claims
    ]
    stream = {"output_type": "stream", "name": "stdout", "text": "claim 04.9 | holds: True | a mere print"}
    cells = [{"cell_type": "markdown", "source": ""}, {"cell_type": "code", "outputs": [stream, *outputs]}]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return path


def test_outside_a_notebook_a_claim_is_one_printed_line(capsys):
    claim("04.5", "Attention holds at 50 words.", holds=True, measured="86 BLEU")
    line = "claim 04.5 | holds: True | Attention holds at 50 words. | measured: 86 BLEU\n"
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("yes", [np.bool_(True), torch.tensor(1.0) > 0, np.array(1.0) > 0])
def test_truth_values_of_arrays_count(yes, capsys):
    claim("04.5", "It holds.", holds=yes, measured="1")
    assert "holds: True" in capsys.readouterr().out
    claim("04.5", "It does not.", holds=~yes, measured="1")
    assert "holds: False" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": "4.5"}, "'4.5'"),
        ({"id": "04"}, "'04'"),
        ({"id": "04.0"}, "'04.0'"),
        ({"id": "04.5\n"}, "id"),
        ({"id": 4.5}, "4.5"),
        ({"holds": "False"}, "holds"),
        ({"holds": None}, "holds"),
        ({"holds": 1}, "holds"),
        ({"sentence": " "}, "sentence"),
        ({"sentence": "one\ntwo"}, "sentence"),
        ({"measured": ""}, "measured"),
        ({"measured": 0.26}, "0.26"),
        ({"source": ""}, "source"),
    ],
)
def test_malformed_claims_are_refused_by_name(change, named, tmp_path):
    entry = RIGHT | change
    arguments = {name: entry[name] for name in ("sentence", "holds", "measured")}
    with pytest.raises(ClaimError, match=named):
        claim(entry["id"], source=entry.get("source", "measured above"), **arguments)
    path = notebook(tmp_path / "04_x.ipynb", {"source": "measured above"} | entry)
    with pytest.raises(ClaimError, match="04_x"):
        read([path])


line = st.text(st.characters(blacklist_categories=["C", "Zl", "Zp"]), min_size=1).filter(str.strip)
made = st.builds(
    Claim,
    id=st.builds("{:02}.{}".format, st.integers(1, 8), st.integers(1, 99)),
    sentence=line,
    holds=st.booleans(),
    measured=line,
    source=line,
)


@given(st.lists(made, unique_by=lambda claim: claim.id))
def test_what_is_stored_is_read_back_in_order(tmp_path_factory, claims):
    folder = tmp_path_factory.mktemp("claims")
    paths = [notebook(folder / f"{number}.ipynb", entry.as_dict()) for number, entry in enumerate(claims)]
    assert set(read(paths)) == set(claims)
    numbers = [tuple(map(int, entry.id.split("."))) for entry in read(paths)]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("together", [True, False])
def test_two_claims_may_not_share_an_id(tmp_path, together):
    other = RIGHT | {"sentence": "Another."}
    if together:
        paths = [notebook(tmp_path / "04_x.ipynb", RIGHT, other)]
    else:
        paths = [notebook(tmp_path / "04_x.ipynb", RIGHT), notebook(tmp_path / "05_y.ipynb", other)]
    with pytest.raises(ClaimError, match=r"04\.5 stands twice.*04_x"):
        read(paths)


def test_a_claim_with_unknown_or_missing_fields_is_malformed(tmp_path):
    for entry in (RIGHT | {"colour": "blue"}, {"id": "04.5"}, "04.5"):
        with pytest.raises(ClaimError, match="malformed"):
            read([notebook(tmp_path / "04_x.ipynb", entry)])


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"cells": [1]}', '{"cells": 3}'])
def test_files_that_are_no_notebooks_are_named(tmp_path, content):
    path = tmp_path / "04_x.ipynb"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ClaimError, match="04_x"):
        read([path])
