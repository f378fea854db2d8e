"""From bytes to a Manifest, or a PackError that says what is wrong and where.

Called by `pack` with what it read. Kernels, rows and predictors stand one a line, and are read and
checked when they are asked for: thousands take half a second, and a process wants a few. All else
is checked at once. What the rules are, `manifest_fields` and `manifest_checks` say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import PackError
from ..problem import Key
from .grouped import check_named, check_order
from .manifest import (
    MAX_MANIFEST_BYTES,
    SCHEMA,
    Baseline,
    Blob,
    DeviceProfile,
    GeneratorInfo,
    GroupedRow,
    KernelEntry,
    PackInfo,
    Row,
    Toolchain,
    WinPolicy,
)
from .manifest_checks import (
    check_blob_order,
    check_grouped_abi,
    check_head,
    check_kernel_abi,
    check_launch_record,
    check_place,
    check_row,
    check_rows_admitted,
    index_rows,
    unique_kernels,
)
from .manifest_fields import FIELDS, KERNEL, MAX_KERNELS, MAX_ROWS, OPTIONAL_FIELDS, ROW
from .prediction_fields import MAX_PREDICTOR_BYTES, MAX_PREDICTORS, PREDICTOR
from .predictor import Predictor, check_candidates, check_predictor
from .strict_json import Check, read_json, record

#: Of what is no kernel, row or predictor, and of a kernel or row; no valid ones are longer.
MAX_HEAD_BYTES, MAX_LINE_BYTES = 1 << 17, 1 << 16
#: Lines that the arrays begin with. No string of JSON holds a line break.
_KERNELS, _TABLE = b'\n"kernels":[\n', b'\n"table":[\n'
_PREDICTORS = b'\n"predictors":[\n'

Place = tuple[str, Key]


def parse(data: bytes) -> Manifest:
    """Split a manifest into lines and check the head, which is all but kernels and rows. Raises
    PackError."""
    if len(data) > MAX_MANIFEST_BYTES:
        detail = f"{len(data)} bytes, not at most {MAX_MANIFEST_BYTES}"
        raise PackError("manifest_too_large", detail)
    kernels, predictors, table = _lines(data)
    head = data[: kernels.start] + data[kernels.end : predictors.start]
    head += data[predictors.end : table.start] + data[table.end :]
    if len(head) > MAX_HEAD_BYTES:
        detail = f"{len(head)} bytes beside the lines of kernels and rows, not {MAX_HEAD_BYTES}"
        raise PackError("head_too_large", detail)
    value = read_json(head)
    check_head(value, SCHEMA)
    fields = _HEAD(value)
    del fields["kernels"], fields["table"]
    fields.pop("predictors", None)
    index_rows((), {}, fields["device_profiles"])
    if "grouped" in fields:
        check_grouped_abi(fields["launcher_abi"])
        check_order(fields["grouped"], fields["device_profiles"])
    return Manifest(fields, kernels, table, predictors)


def _elsewhere(value: Any) -> None:
    """What the head has left of an array whose lines were found."""
    if value != []:
        raise PackError("not_in_lines", "each kernel, row and predictor must be one line")


_HEAD = record(
    dict,
    OPTIONAL_FIELDS | {"predictors": _elsewhere},
    **{**FIELDS, "kernels": _elsewhere, "table": _elsewhere},
)


class Lines(NamedTuple):
    """One array: its items are the lines of `data` from `start` to `end`, with commas between."""

    name: str
    check: Check
    data: bytes
    start: int
    end: int
    longest: int = MAX_LINE_BYTES

    def at(self, place: int) -> tuple[Any, int, int]:
        """The item on the line that the byte at `place` is of, and where that starts and ends."""
        low = self.data.rfind(b"\n", max(self.start - 1, place - self.longest), place) + 1
        high = self.data.find(b"\n", place, min(self.end + 1, place + self.longest))
        if low == 0 or high < 0 or high - low > self.longest:
            raise PackError("line_too_long", f"more than {self.longest} bytes", self.name)
        try:
            last = high == self.end
            if not last and self.data[high - 1 : high] != b",":
                raise PackError(
                    "not_in_lines", "the line is not the last and does not end with a comma"
                )
            return self.check(read_json(self.data[low : high if last else high - 1])), low, high
        except PackError as error:
            raise error.within(self.where(low)) from None

    def where(self, start: int) -> str:
        """The path of the item on the line that starts there."""
        before = self.data.count(b"\n", self.start, start)
        return f"{self.name}[{before}]"

    def each(self, most: int) -> Iterator[tuple[Any, int, int]]:
        """Every line as of `at`."""
        count = self.data.count(b"\n", self.start, self.end) + (self.start < self.end)
        if count > most:
            raise PackError("bad_count", f"{count} items, not 0..{most}", self.name)
        start = self.start
        for _ in range(count):
            found = self.at(start)
            yield found
            start = found[2] + 1


def _lines(data: bytes) -> tuple[Lines, Lines, Lines]:
    """Where kernels, predictors and rows stand, each up to the last line before what follows that
    begins with a bracket. Empty at the end of `data` where they do not stand in lines, and
    predictors before the rows where there are none."""
    kernels, table = data.find(_KERNELS), data.find(_TABLE)
    between = data.find(_PREDICTORS, max(kernels, 0), max(table, 0))
    first, second = kernels + len(_KERNELS), table + len(_TABLE)
    last = between if between >= 0 else table
    ends = data.rfind(b"\n]", first, max(last, 0)), data.rfind(b"\n]", second)
    middle = between + len(_PREDICTORS) if between >= 0 else second
    stop = data.rfind(b"\n]", middle, table) if between >= 0 else second
    if kernels < 0 or min(*ends, stop) < 0:
        first = middle = stop = second = len(data)
        ends = first, second
    return (
        Lines("kernels", KERNEL, data, first, ends[0]),
        Lines("predictors", PREDICTOR, data, middle, stop, MAX_PREDICTOR_BYTES),
        Lines("table", ROW, data, second, ends[1]),
    )


class Manifest:
    """A manifest whose head passed every check. `kernel`, `row` and `predictor` check what they
    hand out; `kernels`, `table` and `predictors`, `by_id` and `rows`, which hold the same objects,
    need every check of the format. All of these raise PackError."""

    schema: str
    pack: PackInfo
    launcher_abi: int
    arch: str
    device_profiles: tuple[DeviceProfile, ...]
    min_driver: int
    toolchain: Toolchain
    generator: GeneratorInfo
    blob: Blob
    baseline: Baseline
    policy: WinPolicy
    grouped: tuple[GroupedRow, ...] = ()

    def __init__(
        self, head: Mapping[str, Any], kernels: Lines, rows: Lines, predictors: Lines
    ) -> None:
        self.__dict__.update(head)
        self._kernel_lines, self._row_lines = kernels, rows
        self._predictor_lines = predictors
        self._known: dict[str, KernelEntry] = {}

    def kernel(self, kernel_id: str) -> KernelEntry:
        """The kernel with that id, which one of the manifest's rows names."""
        found = self._known.get(kernel_id)
        return found or self._known.setdefault(kernel_id, self._find(kernel_id))

    def holds(self, entry: KernelEntry) -> bool:
        """Whether it was handed out by this very manifest."""
        return self._known.get(entry.id) is entry

    def row(self, profile: str, key: Key) -> Row | None:
        """The row of a problem on a device profile, by bisection, or None. Every row that is looked
        at has been checked, and that they rise; of the one found also all that it names."""
        if "table" in self.__dict__:
            return self.rows.get((profile, key))
        lines, wanted = self._row_lines, (profile, key)
        low, high = lines.start, lines.end
        least: Row | None = None
        most: Row | None = None
        while low < high:
            row, start, end = lines.at((low + high) // 2)
            if _place(row) == wanted:
                least = lines.at(start - 1)[0] if start > lines.start else None
                most = lines.at(end + 1)[0] if end < lines.end else None
            _check_rise(least, row, lines, start)
            _check_rise(row, most, lines, end + 1)
            if _place(row) == wanted:
                self._check_named(row, start)
                return row  # type: ignore[no-any-return]
            if _place(row) < wanted:
                low, least = end + 1, row
            else:
                high, most = start - 1, row
        return None

    @property
    def row_lines(self) -> tuple[bytes, int, int]:
        """The bytes that the rows are in, and where they start and end there."""
        return self._row_lines.data, self._row_lines.start, self._row_lines.end

    def predictor(self, profile: str) -> Predictor | None:
        """The predictor of a device profile, or None; its candidates are not yet held against the
        kernels that they name."""
        found = [each for each in self._predictors if each.profile == profile]
        return found[0] if found else None

    @cached_property
    def _predictors(self) -> tuple[Predictor, ...]:
        lines, found = self._predictor_lines, list[Predictor]()
        for each, start, _ in lines.each(MAX_PREDICTORS):
            try:
                check_predictor(each)
                if each.profile not in [known.name for known in self.device_profiles]:
                    raise PackError("unknown_profile", each.profile, "profile")
                if each.profile in [other.profile for other in found]:
                    raise PackError("duplicate_profile", each.profile, "profile")
            except PackError as error:
                raise error.within(lines.where(start)) from None
            found.append(each)
        return tuple(found)

    def _check_named(self, row: Row, start: int) -> None:
        """A row beside the kernels that it names."""
        named = {i: self.kernel(i) for i in (row.kernel, row.dependent) if i is not None}
        try:
            check_row(self.launcher_abi, row)
            index_rows((row,), named, self.device_profiles)
            check_rows_admitted((row,), named)
        except PackError as error:
            where = error.where.replace("table[0]", self._row_lines.where(start))
            raise PackError(error.code, error.detail, where) from None

    def _find(self, kernel_id: str) -> KernelEntry:
        lines, needle = self._kernel_lines, _id_of(kernel_id)
        found = None
        place = lines.data.find(needle, lines.start, lines.end)
        while place >= 0:
            entry, start, end = lines.at(place)
            if entry.id == kernel_id:  # and not a gene that is called so
                if found is not None:
                    raise PackError("duplicate_kernel_id", kernel_id, f"{lines.where(start)}.id")
                found = self._check_entry(entry, start)
            place = lines.data.find(needle, end, lines.end)
        if found is None:
            raise PackError("unknown_kernel", kernel_id)
        return found

    def _check_entry(self, entry: KernelEntry, start: int) -> KernelEntry:
        """A kernel whose fields fit each other and the blob."""
        try:
            check_launch_record(entry)
            check_kernel_abi(self.launcher_abi, entry)
            check_place(entry, self.blob.bytes)
        except PackError as error:
            raise error.within(self._kernel_lines.where(start)) from None
        return entry

    def check(self) -> int:
        """Every check that needs no blob; how many rows there are."""
        check_named(self.grouped, self.by_id)
        _ = self.predictors
        return len(self.table)

    @cached_property
    def kernels(self) -> tuple[KernelEntry, ...]:
        lines, found = self._kernel_lines, []
        for entry, start, end in lines.each(MAX_KERNELS):
            found.append(self._check_entry(entry, start))
            if lines.data.find(_id_of(entry.id), start, end) < 0:
                detail = "the id is not written so that it is found"
                raise PackError("not_canonical", detail, f"{lines.where(start)}.id")
        unique_kernels(found)
        check_blob_order(found, self.blob.bytes)
        return tuple(self._known.setdefault(entry.id, entry) for entry in found)

    @cached_property
    def predictors(self) -> tuple[Predictor, ...]:
        for index, each in enumerate(self._predictors):
            try:
                check_candidates(each, self.by_id)
            except PackError as error:
                raise error.within(f"predictors[{index}]") from None
        return self._predictors

    @cached_property
    def by_id(self) -> Mapping[str, KernelEntry]:
        return {entry.id: entry for entry in self.kernels}

    @cached_property
    def table(self) -> tuple[Row, ...]:
        found: list[Row] = []
        for row, start, _ in self._row_lines.each(MAX_ROWS):
            _check_rise(found[-1] if found else None, row, self._row_lines, start)
            try:
                check_row(self.launcher_abi, row)
            except PackError as error:
                raise error.within(self._row_lines.where(start)) from None
            found.append(row)
        index_rows(found, self.by_id, self.device_profiles)
        check_rows_admitted(found, self.by_id)
        return tuple(found)

    @cached_property
    def rows(self) -> Mapping[Place, Row]:
        return {_place(row): row for row in self.table}


def _place(row: Row) -> Place:
    """What rows are sorted by."""
    return row.profile, row.key


def _check_rise(low: Row | None, high: Row | None, lines: Lines, start: int) -> None:
    """Rows stand by profile and problem, each once."""
    if low is None or high is None or _place(low) < _place(high):
        return
    if _place(low) == _place(high):
        detail = f"{high.key} on {high.profile}"
        raise PackError("duplicate_table_key", detail, lines.where(start))
    detail = "rows do not rise by profile and problem"
    raise PackError("table_order", detail, lines.where(start))


def _id_of(kernel_id: str) -> bytes:
    """How a kernel's line says its id."""
    return f'"id":"{kernel_id}"'.encode()
