"""Abusive packs with what most packs have not: grouped products, batches, predictors and
facts of a profile."""

from __future__ import annotations

from tests.abuse.builder import put
from tests.abuse.case import USE, WHOLE, Case
from tests.abuse.changes import batched, crowded, grouped, predictor, predictors_in_one_line

STEPS = {"min": 8, "max": 16384, "multiple_of": 8}
BAD_BOUND = {"us": 1.0, "torch_us": 2.0, "cublaslt_us": 2.0, "speedup": 2.0, "lcb": 2.1}
CAPLESS = {"tile_m": 64, "tile_n": 64, "persistent": False}
GROUPED = [
    Case("grouped_row_of_an_old_abi", "bad_grouped", grouped({}, abi=5)),
    Case("grouped_kernel_of_an_old_abi", "bad_grouped", grouped(abi=5), WHOLE),
    Case("grouped_in_a_cluster", "bad_grouped", grouped({}, cluster=[2, 1, 1]), WHOLE),
    Case(
        "grouped_of_one_tile",
        "bad_grouped",
        grouped({}, grid={"tile_m": 64, "tile_n": 64, "persistent": False}),
        WHOLE,
    ),
    Case("grouped_of_columns", "bad_grouped", grouped({}, layout="tn"), WHOLE),
    Case(
        "grouped_of_full_tiles",
        "bad_grouped",
        grouped({}, dims=dict.fromkeys(("m", "n", "k"), STEPS)),
        WHOLE,
    ),
    Case("grouped_with_a_bias", "bad_epilogue", grouped({}, epilogue="bias"), WHOLE),
    Case("grouped_rows_that_fall", "table_order", grouped({"m": 64}, {"m": 8})),
    Case("grouped_row_twice", "table_order", grouped({}, {})),
    Case("grouped_on_another_device", "unknown_profile", grouped({"profile": "NVIDIA H100"})),
    Case("grouped_bound_above_estimate", "bad_bound", grouped({"hot": BAD_BOUND})),
    Case("grouped_row_without_its_kernel", "unknown_kernel", grouped({"kernel": "2" * 64}), WHOLE),
    Case("grouped_row_of_another_layout", "not_admitted", grouped({"layout": "nt"}), WHOLE),
    Case("grouped_row_beyond_dims", "not_admitted", grouped({"m": 16392}), WHOLE),
    Case("plain_row_of_a_grouped_kernel", "not_admitted", grouped(served="kernel"), USE),
    Case("grouped_kernel_behind_another", "not_admitted", grouped(served="dependent"), USE),
    Case("no_grouped_row", "bad_count", put([], "grouped"), schema=True),
    Case("groups_without_end", "out_of_bounds", grouped({"groups": 513}), schema=True),
    Case("grouped_of_transposed_tokens", "bad_value", grouped({"layout": "tn"}), schema=True),
]
BATCHES = [
    Case("batched_row_of_an_old_abi", "bad_batches", batched({}, abi=6), WHOLE),
    Case("batched_kernel_of_an_old_abi", "bad_batches", batched(abi=6), WHOLE),
    Case("batched_in_a_capless_grid", "bad_batches", batched(grid=CAPLESS), WHOLE),
    Case("batched_that_splits_k", "bad_batches", batched(cluster=[1, 1, 2]), WHOLE),
    Case("batched_that_reads_ahead", "bad_batches", batched(reads_ahead=True), WHOLE),
    Case("batched_with_a_gate", "bad_batches", batched(epilogue="gated_silu"), WHOLE),
    Case("batched_with_an_odd_sum", "bad_epilogue", batched(epilogue="residual"), WHOLE),
    Case("batched_of_short_parameters", "param_sizes", batched(param_sizes=[128, 128, 128]), WHOLE),
    Case("plain_row_of_a_batched_kernel", "not_admitted", batched({}, plain=True), USE),
    Case("batched_row_of_a_plain_kernel", "not_admitted", batched({}, served=1), WHOLE),
    Case("batched_row_of_another_layout", "not_admitted", batched({"layout": "nt"}), WHOLE),
    Case("batch_of_one", "out_of_bounds", batched({"batches": 1}), USE, schema=True),
    Case("batches_without_end", "out_of_bounds", batched({"batches": 2**31}), USE, schema=True),
    Case("batches_as_text", "wrong_type", batched({"batches": "4"}), USE, schema=True),
]
# Seen by no process that multiplies what was measured.
PREDICTORS = [
    *(
        Case(f"predictor_{name}", code, predictor(value, *keys), WHOLE, schema=True)
        for name, code, value, keys in (
            ("of_an_unknown_field", "unknown_field", 1, ("code",)),
            ("pickled", "wrong_type", "gASVAAAA", ("ours",)),
            ("margin_below_1", "out_of_bounds", 0.99, ("margin",)),
            ("of_an_unknown_feature", "out_of_bounds", [59, 1, -1, -1, -1], ("ours", "feature")),
            ("with_a_leaf_of_text", "wrong_type", ["0"], ("torch", "number")),
            ("without_trees", "bad_count", [], ("doubt", "roots")),
            ("of_too_many_trees", "bad_count", [0] * 513, ("ours", "roots")),
            ("of_too_many_nodes", "bad_count", [-1] * 65536, ("ours", "feature")),
            ("without_candidates", "bad_count", [], ("candidates",)),
            ("of_a_huge_tile", "out_of_bounds", 1 << 25, ("candidates", 0, "numbers", 1)),
        )
    ),
    *(
        Case(f"predictor_{name}", code, predictor(value, *keys), WHOLE)
        for name, code, value, keys in (
            ("of_an_unknown_profile", "unknown_profile", "NVIDIA H100", ("profile",)),
            ("of_an_unknown_kernel", "unknown_kernel", "2" * 64, ("candidates", 0, "kernel")),
            ("of_a_wrong_tile", "bad_candidate", 256, ("candidates", 0, "numbers", 1)),
            ("of_a_wrong_layout", "bad_candidate", "nt", ("candidates", 0, "layout")),
            ("of_wrong_dims", "bad_candidate", 1, ("candidates", 0, "dims", "m", "min")),
            ("of_another_family", "bad_candidate", ["sm90_other"], ("families",)),
            ("of_an_unlisted_family", "bad_predictor", 1, ("candidates", 0, "numbers", 0)),
            ("of_an_empty_tile", "bad_predictor", 0, ("candidates", 0, "numbers", 3)),
            ("of_an_empty_cluster", "bad_predictor", 0, ("candidates", 0, "numbers", 5)),
            ("of_an_empty_group", "bad_predictor", 0, ("candidates", 0, "numbers", 18)),
            ("of_wrong_units", "bad_candidate", 2, ("candidates", 0, "numbers", 12)),
            ("of_one_family_twice", "bad_predictor", ["sm90_test"] * 2, ("families",)),
            ("that_goes_round", "bad_predictor", [4, 1, 0, 0, 0], ("ours", "right")),
            ("that_leaves_its_trees", "bad_predictor", [9, 3, 0, 0, 0], ("ours", "right")),
            ("whose_sides_overlap", "bad_predictor", [3, 3, 0, 0, 0], ("ours", "right")),
            ("whose_leaf_goes_on", "bad_predictor", [4, 3, 0, 0, 1], ("ours", "right")),
            ("of_a_node_too_few", "bad_predictor", [4, 3, 0, 0], ("ours", "right")),
            ("of_an_open_tree", "bad_predictor", [0, 1, -1, -1, 0], ("ours", "feature")),
            ("that_starts_late", "bad_predictor", [1], ("ours", "roots")),
            ("of_an_empty_tree_at_the_end", "bad_predictor", [0, 5], ("ours", "roots")),
            ("of_falling_trees", "bad_predictor", [0, 0], ("ours", "roots")),
            ("whose_torch_sees_kernels", "bad_predictor", 23, ("torch", "feature", 0)),
        )
    ),
    Case("predictor_twice", "duplicate_profile", predictor(last=2), WHOLE),
    Case("too_many_predictors", "bad_count", predictor(last=17), WHOLE, schema=True),
    Case("predictor_of_too_many_kernels", "bad_predictor", crowded, WHOLE),
    Case("predictors_without_lines", "missing_field", predictors_in_one_line),
]
PROFILES = [
    Case(name, code, put(value, "device_profiles", 0, field), schema=True)
    for name, code, field, value in (
        ("no_power_at_all", "out_of_bounds", "power_limit_w", 0),
        ("null_power", "wrong_type", "power_limit_w", None),
        ("wide_bus", "out_of_bounds", "theoretical_mem_bw_gbps", 1e7),
        ("text_as_bandwidth", "wrong_type", "theoretical_mem_bw_gbps", "4917"),
        ("unknown_profile_field", "unknown_field", "power_w", 700),
    )
]
