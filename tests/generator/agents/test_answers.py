"""What is read out of a model's text, whatever that is."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.agents import answers
from hgemm_packs.generator.agents.answers import Edit, Unclear

KERNEL = 'extern "C" __global__ void __launch_bounds__(32) tiny(const u16* a) {\n}\n'


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '  {"a": 1}\n',
        'Here it is:\n```json\n{"a": 1}\n```\nGood luck.',
        'I think {"a": 1} is right.',
        'first ```not this``` then\n```\n{"a": 1}\n```',
    ],
)
def test_an_object_is_found_alone_fenced_or_among_words(text: str) -> None:
    assert answers.read_object(text) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "none", "[1]", "{", "{'a': 1}", "[" * 100_000, '{"a": 1} and {"b": 2}']
)
def test_a_text_without_one_object_is_unclear(text: str) -> None:
    with pytest.raises(Unclear, match="is not the JSON object"):
        answers.read_object(text)


def test_edits_are_made_in_turn() -> None:
    text = (
        "Deeper.\n<<<<<<< SEARCH\nint a = 1;\n=======\nint a = 2;\nint b;\n>>>>>>> REPLACE\n"
        "<<<<<<< SEARCH\nint b;\n=======\n>>>>>>> REPLACE\n"
    )
    edits = answers.read_edits(text)
    assert edits == [Edit("int a = 1;\n", "int a = 2;\nint b;\n"), Edit("int b;\n", "")]
    assert answers.apply("x\nint a = 1;\ny\n", edits) == "x\nint a = 2;\ny\n"


@pytest.mark.parametrize(("source", "count"), [("nothing", 0), ("a\na\n", 2)])
def test_a_piece_must_stand_in_the_file_once(source: str, count: int) -> None:
    with pytest.raises(Unclear, match=f"block 1 stands {count} times"):
        answers.apply(source, [Edit("a\n", "b\n")])


def test_a_piece_of_blanks_is_no_piece() -> None:
    with pytest.raises(Unclear, match="stands 0 times"):
        answers.apply("a\n\nb", [Edit("\n", "x")])


def test_an_edit_without_an_end_is_unclear() -> None:
    with pytest.raises(Unclear, match="no ======="):
        answers.read_edits("<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n")


def test_the_file_is_the_one_block_with_a_kernel() -> None:
    text = f"See\n```\nnvcc x\n```\nthen\n```cuda\n{KERNEL}```\n"
    assert answers.read_file(text) == KERNEL
    for wrong, count in (("no block", 0), (text + text, 2), (KERNEL, 0)):
        with pytest.raises(Unclear, match=f"^{count} code blocks"):
            answers.read_file(wrong)


def test_the_kernel_has_a_name() -> None:
    assert answers.kernel_name(KERNEL) == "tiny"
    with pytest.raises(Unclear, match="has 0 extern"):
        answers.kernel_name("__global__ void tiny() {}")
    with pytest.raises(Unclear, match="has 2 extern"):
        answers.kernel_name(KERNEL + KERNEL)


def test_records_are_laid_on_each_other() -> None:
    text = 'RECORD: {"block": 32}\nand\nRECORD: {"block": 64, "smem_bytes": 1}\n'
    assert answers.read_record(text) == {"block": 64, "smem_bytes": 1}
    assert answers.read_record("no RECORD: {}") == {}
    with pytest.raises(Unclear, match="one JSON object"):
        answers.read_record("RECORD: block = 32")


@pytest.mark.parametrize(
    "text",
    [
        "<<<<<<< SEARCH\n" * 30_000,
        "```\n" * 100_000,
        "RECORD: " * 50_000,
        'extern "C" __global__ void ' + "__launch_bounds__(1) " * 20_000,
        "{" * 400_000,
        '{"a":' * 80_000,
    ],
)
def test_hostile_texts_are_read_and_are_unclear(text: str) -> None:
    """A reader that looked again from each line would not come to an end of these."""
    for read in (answers.read_object, answers.read_file, answers.kernel_name):
        with pytest.raises(Unclear):
            read(text)
    if "SEARCH" in text:
        with pytest.raises(Unclear):
            answers.read_edits(text)
    else:
        assert answers.read_edits(text) == []
