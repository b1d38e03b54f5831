"""Expressions over sizes."""

import pytest

from conformance.errors import ContractError
from conformance.expressions import Expression


@pytest.mark.parametrize(
    ("text", "value"),
    [("Y-1", 4), ("Y//2", 2), ("(Y-1)//2", 2), ("2*Y + X % 2", 11), ("X*Y >= 15", 1), ("X==Y", 0)],
)
def test_value(text: str, value: int) -> None:
    assert Expression(text).evaluate({"X": 3, "Y": 5}) == value


def test_names_are_what_it_depends_on() -> None:
    assert Expression("(Y-1)//X").names == {"X", "Y"}


@pytest.mark.parametrize("text", ["Y.real", "f(Y)", "1.5*Y", "Y/2", "not Y", "1 < Y < 3", "'Y'"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="an expression over sizes has names, integers"):
        Expression(text)


def test_a_syntax_error_points_at_the_character() -> None:
    with pytest.raises(ContractError) as error:
        Expression("Y -- )")
    message, text, caret = str(error.value).split("\n")
    assert message.startswith("expected an expression over sizes, such as 'Y-1'")
    assert text[caret.index("^")] == ")"
