"""A reader of packs in under 120 lines: the standard library and docs/pack_format.md, no more.

It takes that page's tables as they stand. Raises ValueError for damage, OSError for no file."""

import json
import os
import re
import stat
from hashlib import sha256
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "pack_format.md").read_text(encoding="utf-8")
TYPES, *_SECTIONS = PAGE.split("\n#### ")
TEXTS = dict(re.findall(r"^\| `(\w+)` \|[^`\n]* `([^`\n]+)`[^`\n]*\|$", TYPES, re.M))
_FIELD = re.compile(r"^\| `(\w+)`( \(optional\))? \| `([^`\n]+)` \|", re.M)
TABLES = {each.split("`")[1]: _FIELD.findall(each.split("\n#")[0]) for each in _SECTIONS}
RANGED = ("array", "object", "int", "number")
NEAR = {"theoretical_mem_bw_gbps": 0.02, "power_limit_w": 0.05}
PROBLEM = ("m", "n", "k", "layout", "dtype", "out_dtype", "acc", "epilogue")


def want(fine, what):
    if not fine:
        raise ValueError(what)


def fits(value, kind):
    head, *rest = kind.split()
    low, high = map(float, rest[0].split("..")) if head in RANGED else (0, 0)
    if head in ("array", "object"):
        right = type(value) is {"array": list, "object": dict}[head] and low <= len(value) <= high
        items = value.values() if right and head == "object" else value
        right = right and (head == "array" or all(fits(key, "symbol") for key in value))
        return right and all(fits(each, " ".join(rest[2:])) for each in items)
    if " or " in kind:
        return any(fits(value, each) for each in kind.split(" or "))
    if head in TABLES:
        kinds = {name: each for name, _, each in TABLES[head]}
        needed = {name for name, optional, _ in TABLES[head] if not optional}
        right = type(value) is dict and needed <= value.keys() <= kinds.keys()
        return right and all(fits(value[name], kinds[name]) for name in value)
    if head == "one":
        return type(value) in (int, str) and value in [int(x) if x.isdigit() else x for x in rest]
    if head in ("int", "number"):
        right = type(value) is int or (head == "number" and type(value) is float)
        return right and low <= value <= high and (len(rest) < 3 or value % int(rest[2]) == 0)
    if head in TEXTS:
        return type(value) is str and re.fullmatch(TEXTS[head], value) is not None
    return type(value) is {"bool": bool, "null": type(None)}[head]


def decode(text):
    def unique(pairs):
        want(len(dict(pairs)) == len(pairs), "two equal keys")
        return dict(pairs)

    return json.loads(text.decode(), object_pairs_hook=unique)


def load(folder, name, most):
    handle = os.open(Path(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        facts = os.fstat(handle)
        want(stat.S_ISREG(facts.st_mode) and facts.st_size <= most, name)
        return file.read()


def read(folder):
    """The manifest of a pack, with `image`, each kernel's cubin by its id."""
    data, blob = load(folder, "manifest.json", 1 << 24), load(folder, "kernels.bin", 1 << 29)
    head, end, pack = b"", len(data), {}
    parts = {
        "table": 16,
        "predictors": 21,
        "kernels": 16,
    }  # from the last on: bits of a line's size
    for name, bits in parts.items():
        found = data.find(b'\n"%s":[\n' % name.encode(), 0, end)
        want(found >= 0 or name == "predictors", name)
        start = found + len(name) + 6 if found >= 0 else end
        stop = data.rindex(b"\n]", start, end) if found >= 0 else end
        lines = data[start:stop].split(b"\n") if start < stop else []
        want(all(each.endswith(b",") for each in lines[:-1]), "a line without a comma")
        want(max(map(len, lines), default=0) <= 1 << bits, "a long line")
        pack[name] = [decode(each[:-1]) for each in lines[:-1]] + list(map(decode, lines[-1:]))
        head, end = data[stop:end] + head, start
    rest = decode(data[:end] + head)
    want(fits(rest, "manifest") and not any(rest.get(name) for name in parts), "head")
    want(len(data[:end] + head) <= 1 << 17, "a long head")
    pack = rest | {name: pack[name] for name in rest.keys() & parts}
    want(fits(pack, "manifest"), "fields")
    want(pack["blob"] == {"bytes": len(blob), "sha256": sha256(blob).hexdigest()}, "kernels.bin")
    pack["image"] = {k["id"]: blob[k["offset"] :][: k["size"]] for k in pack["kernels"]}
    want(all(sha256(image).hexdigest() == key for key, image in pack["image"].items()), "a cubin")
    return pack


def is_profile(profile, device):
    known = profile.keys() & device.keys() & NEAR.keys()
    same = ("sm_count", "l2_bytes", *(["name"] if len(known) < len(NEAR) else []))
    near = [abs(profile[x] - device[x]) <= NEAR[x] * max(profile[x], device[x]) for x in known]
    return all(profile[x] == device[x] for x in same) and all(near)


def pick(pack, problem, device, arch, driver):
    names = [each["name"] for each in pack["device_profiles"] if is_profile(each, device)]
    if pack["arch"] != arch or driver < pack["min_driver"] or not names:
        return None
    name = device["name"] if device["name"] in names else names[0]
    for row in pack["table"]:
        odd = tuple(row.get("base", dict.fromkeys("abc", 16)).values()), row.get("packed", True)
        odd += (row.get("batches", 1),)
        if (row["profile"], *(row[field] for field in PROBLEM), *odd) == (name, *problem):
            least = min(row["hot"]["lcb"], row["cold"]["lcb"])
            wins = row["kernel"] is not None and least > 1 + pack["policy"]["noise_floor"]
            return (row["kernel"], row.get("dependent")) if wins else None
    return None
