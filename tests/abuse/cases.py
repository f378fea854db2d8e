"""The abusive packs: the good pack of tests/packs.py with one thing wrong, and the code for it.

`python -m tests.abuse DIR` writes them all, for use by hand and by other readers of the format.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.abuse.builder import (
    Change,
    instead_of,
    manifest_bytes,
    on_blob,
    on_cubin,
    on_manifest,
    put,
    replace_text,
)
from tests.abuse.changes import (
    add,
    byte,
    compact,
    crowd,
    cut,
    dependent,
    device,
    drop,
    flip,
    gate_an_odd_n,
    hole,
    inside,
    last_row,
    link_to_itself,
    link_to_kept,
    nested,
    overlap,
    oversize,
    rename_cubin,
    repeat,
    row_twice,
    shift,
    spaced,
    sub,
    swap_offsets,
    twin,
    without,
    workspace,
)

#: When the pack is opened; when what is spoiled is wanted, for the good pack's problems; never
#: but by the check of all, since none of it is used.
OPEN, USE, WHOLE = "open", "use", "whole"


@dataclass(frozen=True)
class Case:
    """`change` spoils a good pack at the path it gets; the check of all of it must fail with
    `code`. `schema` says that manifests/schema.json alone must refuse the manifest, too; `seen`
    when a process that multiplies sees it, and `used` what it sees if not `code`."""

    name: str
    code: str
    change: Change
    seen: str = OPEN
    used: str = ""
    schema: bool = False


FILES = [
    Case("no_manifest", "missing_file", without("manifest.json")),
    Case("no_blob", "missing_file", without("kernels.bin")),
    Case("symlinked_manifest", "symlink", instead_of("manifest.json", link_to_kept)),
    Case("symlinked_blob", "symlink", instead_of("kernels.bin", link_to_kept)),
    Case("symlink_loop", "symlink", instead_of("manifest.json", link_to_itself)),
    Case("blob_is_a_device_link", "symlink", instead_of("kernels.bin", device)),
    Case("manifest_is_a_fifo", "not_regular_file", instead_of("manifest.json", os.mkfifo)),
    Case("blob_is_a_fifo", "not_regular_file", instead_of("kernels.bin", os.mkfifo)),
    Case("manifest_is_a_folder", "not_regular_file", instead_of("manifest.json", Path.mkdir)),
    Case("blob_is_a_folder", "not_regular_file", instead_of("kernels.bin", Path.mkdir)),
    Case("huge_manifest", "manifest_too_large", oversize),
]
FORM = [
    Case("empty_manifest", "not_json", manifest_bytes(lambda data: b"")),
    Case("truncated_manifest", "not_json", manifest_bytes(lambda data: data[: len(data) // 2])),
    Case("manifest_with_a_tail", "not_json", manifest_bytes(lambda data: data + b"{}")),
    Case("byte_order_mark", "not_json", manifest_bytes(lambda data: b"\xef\xbb\xbf" + data)),
    Case("not_utf8", "not_utf8", manifest_bytes(sub("test-pack", "t\xffst-pack"))),
    Case("utf16", "not_utf8", manifest_bytes(lambda data: data.decode().encode("utf-16"))),
    Case("nesting_bomb", "too_deep", nested(60_000)),
    Case("duplicate_key", "duplicate_json_key", replace_text('"arch":', '"arch":"sm_80","arch":')),
    Case("duplicate_inner_key", "duplicate_json_key", replace_text('"k":', '"k":64,"k":'), USE),
    Case("nan", "not_finite", replace_text('"lcb":1.08', '"lcb":NaN'), USE),
    Case("infinity", "not_finite", replace_text('"lcb":1.08', '"lcb":Infinity'), USE),
    Case("minus_infinity", "not_finite", replace_text('"lcb":1.08', '"lcb":-Infinity'), USE),
    Case("overflowing_float", "not_finite", replace_text('"lcb":1.08', '"lcb":1e999'), USE),
    Case("endless_integer", "out_of_bounds", replace_text('"m":256', '"m":' + "9" * 10_000), USE),
    Case("a_list", "wrong_type", manifest_bytes(lambda data: b"[]"), schema=True),
    Case("null", "wrong_type", manifest_bytes(lambda data: b"null"), schema=True),
]
LINES = [
    Case("in_one_line", "not_in_lines", manifest_bytes(lambda data: compact(data))),
    Case("no_comma", "not_in_lines", replace_text("},\n{", "}\n{"), USE),
    Case(
        "comma_at_the_end", "not_json", replace_text('}\n],\n"toolchain', '},\n],\n"toolchain'), USE
    ),
    Case("two_in_a_line", "not_json", replace_text("},\n{", "},{"), USE),
    Case("over_two_lines", "not_json", replace_text(',"k":', ',\n"k":'), USE),
    Case("empty_line", "not_in_lines", replace_text("},\n{", "},\n\n{"), WHOLE),
    Case("long_line", "line_too_long", last_row("date", "x" * 100_000), USE),
    Case("long_head", "head_too_large", put("x" * 200_000, "surprise"), schema=True),
    Case(
        "table_twice",
        "not_json",
        replace_text('"table":[\n', '"table":[\n],\n"table":[\n'),
        USE,
        "not_in_lines",
    ),
    Case("table_inside", "unknown_field", inside),
    Case("unsorted_table", "table_order", on_manifest(lambda d: d["table"].reverse()), USE),
    Case("id_with_a_space", "not_canonical", spaced, USE, "unknown_kernel"),
]
FIELDS = [
    Case("unknown_field", "unknown_field", put(1, "surprise"), schema=True),
    Case("unknown_row_field", "unknown_field", put(1, "table", 0, "path"), USE, schema=True),
    Case("missing_field", "missing_field", on_manifest(drop), schema=True),
    Case("string_as_int", "wrong_type", put("384", "kernels", 0, "block"), USE, schema=True),
    Case("bool_as_int", "wrong_type", put(True, "kernels", 0, "regs"), USE, schema=True),
    Case("int_as_bool", "wrong_type", put(1, "kernels", 0, "deterministic"), USE, schema=True),
    Case("pdl_of_a_row", "unknown_field", put(True, "table", 0, "pdl"), USE, schema=True),
    Case("null_dependent", "wrong_type", put(None, "table", 0, "dependent"), USE, schema=True),
    Case("name_as_dependent", "bad_text", put("k_tma3", "table", 0, "dependent"), USE, schema=True),
    Case("pdl_of_a_kernel", "unknown_field", put(True, "kernels", 0, "pdl"), USE, schema=True),
    Case("float_as_int", "wrong_type", put(256.0, "table", 0, "m"), USE),
    Case("null_dtype", "wrong_type", put(None, "kernels", 0, "dtype"), USE, schema=True),
    Case("negative_offset", "out_of_bounds", put(-256, "kernels", 0, "offset"), USE, schema=True),
    Case("negative_size", "out_of_bounds", put(-1, "kernels", 0, "size"), USE, schema=True),
    Case("zero_size", "out_of_bounds", put(0, "kernels", 0, "size"), USE, schema=True),
    Case("huge_size", "out_of_bounds", put(2**62, "kernels", 0, "size"), USE, schema=True),
    Case("huge_blob", "out_of_bounds", put(2**62, "blob", "bytes"), schema=True),
    Case("zero_dim", "out_of_bounds", put(0, "table", 0, "k"), USE, schema=True),
    Case(
        "too_much_smem", "out_of_bounds", put(232449, "kernels", 0, "smem_bytes"), USE, schema=True
    ),
    Case("odd_block", "out_of_bounds", put(100, "kernels", 0, "block"), USE, schema=True),
    Case("huge_block", "out_of_bounds", put(1056, "kernels", 0, "block"), USE, schema=True),
    Case("zero_time", "out_of_bounds", put(0.0, "table", 0, "hot", "us"), USE, schema=True),
    Case("unknown_layout", "bad_value", put("xx", "kernels", 0, "layout"), USE, schema=True),
    Case(
        "unknown_params",
        "bad_value",
        put("tma9_v1", "kernels", 0, "param_layout"),
        USE,
        schema=True,
    ),
    Case("huge_workspace", "out_of_bounds", workspace((1 << 20) + 16), USE, schema=True),
    Case("odd_workspace", "out_of_bounds", workspace(4104), USE, schema=True),
    Case("negative_workspace", "out_of_bounds", workspace(-16), USE, schema=True),
    Case("no_slices", "out_of_bounds", workspace(4096, slices=0), USE, schema=True),
    Case("too_many_slices", "out_of_bounds", workspace(4096, slices=65), USE, schema=True),
    Case("slices_as_text", "wrong_type", workspace(4096, slices="2"), USE, schema=True),
    Case("null_slices", "wrong_type", workspace(4096, slices=None), USE, schema=True),
    Case("cooperative_as_int", "wrong_type", workspace(4096, cooperative=1), USE, schema=True),
    Case("reads_ahead_as_int", "wrong_type", put(1, "kernels", 0, "reads_ahead"), USE, schema=True),
    Case(
        "triggers_early_as_int",
        "wrong_type",
        put(1, "kernels", 0, "triggers_early"),
        USE,
        schema=True,
    ),
    Case(
        "unknown_grid_field",
        "unknown_field",
        put(1, "kernels", 0, "grid", "waves"),
        USE,
        schema=True,
    ),
    Case(
        "huge_kernel_count",
        "bad_count",
        on_manifest(crowd),
        WHOLE,
        schema=True,
    ),
    Case(
        "huge_param_count",
        "bad_count",
        put([8] * 999, "kernels", 0, "param_sizes"),
        USE,
        schema=True,
    ),
    Case("no_profile", "bad_count", put([], "device_profiles"), schema=True),
    Case("path_as_pack_name", "bad_name", put("../../etc", "pack", "name"), schema=True),
    Case("path_as_kernel", "bad_name", put("/etc/passwd", "kernels", 0, "name"), USE, schema=True),
    Case("path_as_symbol", "bad_name", put("../x", "kernels", 0, "symbol"), USE, schema=True),
    Case("nul_in_symbol", "bad_name", put("k\0x", "kernels", 0, "symbol"), USE, schema=True),
    Case("newline_in_name", "bad_name", put("k\nx", "kernels", 0, "name"), USE, schema=True),
    Case("control_in_text", "bad_text", put("\x1b[2J", "pack", "license"), schema=True),
    Case("upper_case_hash", "bad_text", put("A" * 64, "blob", "sha256"), schema=True),
    Case("arch_family", "bad_text", put("compute_90", "arch"), schema=True),
    Case("future_schema", "unknown_schema", put("hgemm-packs/3", "schema"), schema=True),
    Case("foreign_abi", "launcher_abi", put(3, "launcher_abi"), schema=True),
]
RULES = [
    Case("duplicate_table_key", "duplicate_table_key", on_manifest(row_twice), USE),
    Case("duplicate_kernel_id", "duplicate_kernel_id", twin("name", "other"), USE),
    Case("duplicate_kernel_name", "duplicate_kernel_name", twin("id", "1" * 64), WHOLE),
    Case("duplicate_profile", "duplicate_profile", repeat("device_profiles", 2)),
    Case("unknown_profile", "unknown_profile", put("NVIDIA H100", "table", 0, "profile"), WHOLE),
    Case("unknown_kernel", "unknown_kernel", put("2" * 64, "table", 0, "kernel"), USE),
    Case("row_beyond_dims", "not_admitted", put(16392, "table", 0, "k"), WHOLE),
    Case("row_off_the_step", "not_admitted", put(129, "table", 0, "k"), WHOLE),
    Case("kernel_below_its_row", "not_admitted", put(128, "kernels", 1, "dims", "m", "max"), USE),
    Case("row_of_other_layout", "not_admitted", put("nt", "table", 0, "layout"), WHOLE),
    Case("row_of_other_dtype", "not_admitted", put("bf16", "table", 0, "dtype"), WHOLE),
    Case("unknown_dependent", "unknown_kernel", put("2" * 64, "table", 0, "dependent"), USE),
    Case("dependent_without_kernel", "bad_dependent", dependent(2), USE),
    Case("dependent_of_other_layout", "not_admitted", dependent(0, layout="nt"), USE),
    Case("dependent_of_other_dtype", "not_admitted", dependent(0, dtype="bf16"), USE),
    Case("bound_above_estimate", "bad_bound", put(1.13, "table", 0, "cold", "lcb"), USE),
    Case("wide_cluster", "bad_cluster", put([16, 2, 1], "kernels", 0, "cluster"), USE),
    Case("empty_range", "bad_range", put(4, "kernels", 0, "dims", "m", "max"), USE),
    Case("param_sizes", "param_sizes", put([8] * 9, "kernels", 0, "param_sizes"), USE),
    Case("params_of_other_layout", "param_sizes", put("ptr_v1", "kernels", 1, "param_layout"), USE),
    Case("workspace_of_no_use", "bad_workspace", put(4096, "kernels", 1, "workspace_bytes"), USE),
    Case("slices_of_no_use", "bad_workspace", put(2, "kernels", 1, "grid", "slices"), USE),
    Case("one_slice", "bad_workspace", workspace(4096, slices=1), USE),
    Case("slices_not_said", "bad_workspace", workspace(4096, slices=...), USE),
    Case("workspace_missing", "bad_workspace", workspace(0), USE),
    Case("sliced_and_persistent", "bad_workspace", workspace(4096, persistent=True), USE),
    Case(
        "cooperative_without_slices", "bad_cooperative", put(True, "kernels", 1, "cooperative"), USE
    ),
    Case("not_cooperative", "bad_cooperative", workspace(4096, cooperative=False), USE),
    Case(
        "params_without_workspace", "param_sizes", workspace(4096, param_sizes=[128, 128, 8]), USE
    ),
    *(
        Case(f"{name}_without_addend", "bad_epilogue", put(name, "kernels", 1, "epilogue"), USE)
        for name in ("bias", "residual")
    ),
    Case(
        "addend_of_no_use", "bad_epilogue", put("tma2_v1_addend", "kernels", 1, "param_layout"), USE
    ),
    Case("epilogue_of_an_old_abi", "bad_epilogue", put("bias", "table", 2, "epilogue"), WHOLE),
    Case("gated_of_an_odd_n", "bad_epilogue", on_manifest(gate_an_odd_n), USE),
    Case("gated_of_an_old_abi", "bad_epilogue", put("gated_silu", "kernels", 1, "epilogue"), USE),
    Case("unknown_epilogue", "bad_value", put("relu", "kernels", 1, "epilogue"), USE, schema=True),
    Case("map_missing", "bad_tma", put([], "kernels", 1, "tma"), USE),
    Case("box_over_swizzle", "bad_tma", put([128, 64], "kernels", 1, "tma", 0, "box"), USE),
    Case("group_of_odd_rows", "bad_tma", put(32, "kernels", 1, "tma", 0, "row_group"), USE),
]
BLOB = [
    Case("truncated_blob", "blob_size", lambda pack: os.truncate(pack / "kernels.bin", 700)),
    Case("empty_blob", "blob_size", lambda pack: os.truncate(pack / "kernels.bin", 0)),
    Case("short_blob", "blob_end", on_blob(cut), WHOLE),
    Case("blob_with_a_tail", "blob_end", on_blob(add), WHOLE),
    Case("wrong_blob_hash", "blob_hash", put("0" * 64, "blob", "sha256"), WHOLE),
    Case("wrong_cubin_id", "kernel_hash", on_manifest(rename_cubin), USE),
    Case("changed_cubin", "kernel_hash", flip(10), USE),
    Case("dirty_padding", "blob_padding", flip(700), WHOLE),
    Case("overlapping", "blob_overlap", on_manifest(overlap), USE, "kernel_hash"),
    Case("out_of_order", "blob_order", on_manifest(swap_offsets), USE, "kernel_hash"),
    Case("hole", "blob_hole", hole, WHOLE),
    Case("offset_unaligned", "blob_unaligned", shift(1, 8), USE),
    Case("offset_beyond", "blob_end", shift(2, 1 << 20), WHOLE),
]
# What a driver takes beside cubins: it compiles PTX, and picks from a fat binary.
CUBINS = [
    Case("ptx", "not_cubin", on_cubin(lambda _: b".version 9.0\n.target sm_90a\n"), USE),
    Case("fat_binary", "not_cubin", on_cubin(lambda cubin: b"\x50\xed\x55\xba" + cubin[4:]), USE),
    Case("nothing", "not_cubin", on_cubin(lambda _: b""), USE),
    Case("elf_of_32_bits", "not_cubin", on_cubin(byte(4, 1)), USE),
    Case("elf_of_another_abi", "not_cubin", on_cubin(byte(8, 7)), USE),
    Case("object_file", "not_cubin", on_cubin(byte(16, 1)), USE),
    Case("code_of_a_cpu", "not_cubin", on_cubin(byte(18, 62)), USE),
    Case("cubin_of_another_arch", "cubin_arch", on_cubin(byte(49, 80), index=2), WHOLE),
]
CASES = FILES + FORM + LINES + FIELDS + RULES + BLOB + CUBINS
