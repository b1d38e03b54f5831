from pathlib import Path

import pytest

from conformance.hlo import HloError, count_instructions, parse, parse_shape, with_tables

DATA = Path(__file__).parent / "data" / "hlo"
TEXTS = sorted(DATA.glob("*/*.hlo"))

SMALL = """\
HloModule small, num_partitions=2

%double (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %sum = f32[2]{0} add(%p, %p)
}

ENTRY %main (x: f32[2]) -> (f32[2], s32[]) {
  %x = f32[2]{0:T(128)} parameter(0), metadata={op_name="x {}"}
  %one = s32[] constant(1)
  %d = f32[2]{0} fusion(%x), kind=kLoop, calls=%double
  ROOT %t = (f32[2]{0}, /*index=1*/s32[]) tuple(%d, %one)
}
"""


def test_there_are_texts_of_every_backend_and_version() -> None:
    folders = {path.parent.name for path in TEXTS}
    assert {"cpu-0.12.0.1", "cpu-0.10.2", "cpu-0.8.2"} <= folders
    assert {name.split("-")[1] for name in folders if name.startswith("tpu")} == {
        "v5e",
        "v6e",
        "tpu7x",
    }


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_instruction_of_a_real_text_is_read(path: Path) -> None:
    text = path.read_text()
    module = parse(text)
    read = sum(len(computation.instructions) for computation in module.computations.values())
    assert read == module.instruction_count == count_instructions(text) > 0
    assert module.partitions in (8, 12)
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            assert instruction.shape.bytes >= 0
            assert instruction.operand_text in instruction.rest
            for callees in instruction.called.values():
                assert all(module.computation(name, instruction) for name in callees)


def test_a_small_text_is_read_whole() -> None:
    module = parse(SMALL)
    assert module.name == "small"
    assert module.entry.name == "main"
    assert list(module.entry.instructions) == ["x", "one", "d", "t"]
    fusion = module.entry.instructions["d"]
    assert fusion.opcode == "fusion"
    assert fusion.called == {"calls": ("double",)}
    assert fusion.attribute("kind") == "kLoop"
    assert module.operand(fusion, 0).name == "x"
    assert str(module.entry.root.shape) == "(f32[2], s32[])"
    assert module.entry.root.shape.bytes == 12


def test_a_string_may_go_on_in_the_next_line() -> None:
    text = SMALL.replace('op_name="x {}"', 'op_name="x\n}\n"')
    assert list(parse(text).entry.instructions) == ["x", "one", "d", "t"]


@pytest.mark.parametrize(
    ("change", "message", "line"),
    [
        (("HloModule", "Module"), "expected 'HloModule NAME'", 1),
        (("  ROOT %sum = f32[2]{0} add", "  ROOT sum is add"), "expected an instruction", 5),
        (("  ROOT %sum", "  %sum"), "expected a computation with a ROOT", 6),
        (("ENTRY ", ""), "expected an ENTRY computation", 14),
        (("= s32[] constant", "= s32[] frobnicate"), "unknown opcode 'frobnicate'", 10),
        (("= s32[] constant", "= q32[] constant"), "expected a shape of a known dtype", 10),
        (("%one = s32[]", "%x = s32[]"), "there are two instructions 'x'", 10),
        (("  %x = f32", "  ROOT %x = f32"), "there are two ROOT instructions", 12),
        (("%double (p", "ENTRY %double (p"), "two computations of this name, or two ENTRY", 8),
        (("ENTRY %main", "ENTRY %double"), "two computations of this name, or two ENTRY", 8),
        (("\n\nENTRY", "\ngarbage\nENTRY"), "expected an instruction, a computation", 7),
        (("num_partitions=2", "replica_count=4"), "replicas beside partitions are not known", 1),
        (('"x {}"', '"x {}'), "expected a closing quote; the text is cut off", 9),
        (
            ("  %one = s32[] constant(1)\n", "something else\n"),
            "expected an instruction, a computation",
            10,
        ),
    ],
)
def test_a_text_of_unknown_form_is_an_error_with_its_line(
    change: tuple[str, str], message: str, line: int
) -> None:
    with pytest.raises(HloError, match=message) as error:
        parse(SMALL.replace(*change))
    assert error.value.line_number == line
    assert f"line {line}" in str(error.value)


@pytest.mark.parametrize("kept", range(3, len(SMALL.splitlines())))
def test_a_text_that_is_cut_off_is_an_error(kept: int) -> None:
    cut = "\n".join(SMALL.splitlines()[:kept])
    with pytest.raises(HloError, match=r"cut off|expected an ENTRY"):
        parse(cut)


def test_operands_without_an_end_are_an_error() -> None:
    module = parse(SMALL.replace("tuple(%d, %one)", "tuple(%d, %one"))
    with pytest.raises(HloError, match=r"expected '\)' after the operands"):
        _ = module.entry.root.operands


def test_an_operand_or_computation_that_is_not_there_is_an_error() -> None:
    module = parse(SMALL.replace("calls=%double", "calls=%triple"))
    fusion = module.entry.instructions["d"]
    with pytest.raises(HloError, match="no computation 'triple'"):
        module.computation("triple", fusion)
    with pytest.raises(HloError, match="no operand 1"):
        module.operand(fusion, 1)


@pytest.mark.parametrize(
    ("text", "shown", "size"),
    [
        ("f32[2,3]{1,0}", "f32[2,3]", 24),
        ("bf16[4]{0:T(8,128)(2,1)S(1)}", "bf16[4]", 8),
        ("pred[]", "pred[]", 1),
        ("s4[3]", "s4[3]", 2),
        ("token[]", "token[]", 0),
        ("((f32[1], u32[]), s8[<=5])", "((f32[1], u32[]), s8[5])", 13),
    ],
)
def test_a_shape_is_read_with_its_bytes(text: str, shown: str, size: int) -> None:
    shape = parse_shape(text)
    assert (str(shape), shape.bytes) == (shown, size)


@pytest.mark.parametrize("text", ["q7[2]", "f32", "(f32[2]", "f32[2] f32[2]"])
def test_a_shape_of_unknown_form_is_an_error(text: str) -> None:
    with pytest.raises(HloError, match="expected"):
        parse_shape(text)


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2, len(content)]) + content


def test_a_table_that_is_left_out_is_read_from_the_protobuf_form() -> None:
    line = "  %t.1 = u32[12]{0} constant({...}), metadata={}"
    literal = _message(6, bytes([0, 1, 2, 200, 1]))
    instruction = _message(1, b"t.1") + bytes([5 << 3, 150, 1]) + _message(8, literal)
    other = (
        _message(1, b"other") + bytes([4 << 3 | 5, 0, 0, 0, 0]) + bytes([7 << 3 | 1, *b"12345678"])
    )
    proto = _message(3, _message(2, other) + _message(2, instruction))
    assert with_tables(line, proto) == line.replace("{...}", "{0, 1, 2, 200}")
    assert (
        with_tables("%f = f32[12]{0} constant({...})", proto) == "%f = f32[12]{0} constant({...})"
    )
    unknown = line.replace("t.1", "t.2")
    assert with_tables(unknown, proto) == unknown
