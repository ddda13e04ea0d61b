"""The GGUF reader: what a sound file gives, and what each kind of damage ends in."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf import TENSOR_TYPES, open_gguf
from engine.gguf.header import MAX_ITEMS, MAX_KEYS
from engine.gguf.reader import READER_BYTES
from engine.gguf.tensors import MAX_TENSORS
from engine.gguf.types import ValueType
from tests.fuzz import gguf_build as gb
from tests.fuzz.gguf_headers import measured

Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes bytes to a file and returns its path."""

    def writer(blob: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(blob)
        return path

    return writer


def refusal(path: Path) -> ModelFileError:
    """The error that opening ends in: one sentence that names the file."""
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    assert path.name in message
    return caught.value


def test_reads_what_the_gguf_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.u32", 7)
    writer.add_float32("a.f32", 0.25)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "grüße 🙂")
    writer.add_array("a.texts", ["", "ä", "two"])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, 1.5])
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    writer.add_tensor("w", weights)
    writer.add_tensor("q", np.zeros((4, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with open_gguf(path) as file:
        data = file.metadata
        assert (file.path, file.size, file.version) == (path, path.stat().st_size, 3)
        assert data["general.architecture"] == "llama"
        assert (data["a.u32"], data["a.f32"], data["a.bool"], data["a.text"]) == (7, 0.25, True, "grüße 🙂")
        assert data["a.texts"] == ["", "ä", "two"]
        assert data["a.ints"].tolist() == [1, -2, 3]
        assert data["a.floats"].tolist() == [0.5, 1.5]
        tensor = file.tensors["w"]
        assert (tensor.name, tensor.type, tensor.shape) == ("w", 0, (2, 3))
        assert np.array_equal(tensor.data.view(np.float32).reshape(tensor.shape), weights)
        assert file.tensors["q"].shape == (4, 32)
        assert file.tensors["q"].data.nbytes == 4 * 34


def test_every_value_type_of_both_versions(write: Write) -> None:
    for version in (2, 3):
        spec = gb.small()
        spec.version = version
        with open_gguf(write(spec.bytes())) as file:
            values = {key.removeprefix("test."): file.metadata[key] for key in file.metadata if key.startswith("test.")}
            ints = {"u8": 200, "i8": -7, "u16": 60_000, "i16": -300, "u32": 4_000_000_000, "i32": -5}
            assert {key: values[key] for key in ints} == ints
            assert (values["u64"], values["i64"]) == (1 << 60, -(1 << 60))
            assert (values["f32"], values["f64"], values["bool"]) == (0.5, 0.1, True)
            numbers, texts = values["nested"]
            assert numbers.tolist() == [1, 2]
            assert texts == ["a", "ß"]
            assert file.tensors["experts.weight"].shape == (3, 2, 32)
            assert file.tensors["token_embd.weight"].data.tobytes() == spec.data[:544]
            assert file.version == version


def test_type_tables_agree_with_the_gguf_package() -> None:
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {kind.id: (kind.name, kind.block, kind.size) for kind in TENSOR_TYPES.values()} == theirs
    assert {kind.name: int(kind) for kind in ValueType} == {kind.name: int(kind) for kind in gguf.GGUFValueType}


def test_real_header(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata.length("tokenizer.ggml.tokens") == 49_152
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert (len(tokens), tokens[1], tokens[2]) == (49_152, "<|im_start|>", "<|im_end|>")
        assert len(file.tensors) == 272
        assert file.tensors["token_embd.weight"].shape == (49_152, 576)
        last = max(file.tensors.values(), key=lambda tensor: tensor.data.ctypes.data)
        first = min(file.tensors.values(), key=lambda tensor: tensor.data.ctypes.data)
        end = last.data.ctypes.data + last.data.nbytes - first.data.ctypes.data
        assert end <= file.size < end + 4_000_000


def damage(change: Callable[[gb.Spec], object]) -> bytes:
    """A small file with one change."""
    spec = gb.small()
    change(spec)
    return spec.bytes()


def _entry(spec: gb.Spec, key: str, kind: int, value: bytes) -> None:
    spec.set(key, kind, value)


TOKENS = "tokenizer.ggml.tokens"
EMBED = "token_embd.weight"
NORM = "blk.0.attn_norm.weight"

DAMAGES: list[tuple[str, Callable[[gb.Spec], object], str, str]] = [
    ("big-endian", lambda s: setattr(s, "version", 0x03000000), "version", "big-endian"),
    ("version 1", lambda s: setattr(s, "version", 1), "version", "no longer in use"),
    ("version 4", lambda s: setattr(s, "version", 4), "version", "only 2 and 3"),
    ("tensor count", lambda s: setattr(s, "n_tensors", 2**63), "tensor_count", "more than its size"),
    ("one tensor too many", lambda s: setattr(s, "n_tensors", 4), "tensors[3].name", ""),
    ("entry count", lambda s: setattr(s, "n_entries", 2**64 - 1), "metadata_count", "more than"),
    ("empty key", lambda s: setattr(s.entries[2], "key", b""), "metadata[2].key", "plain text"),
    ("binary key", lambda s: setattr(s.entries[2], "key", b"a\xff"), "metadata[2].key", "plain text"),
    ("long key", lambda s: setattr(s.entries[2], "key", b"k" * 70_000), "metadata[2].key", "70000"),
    ("key twice", lambda s: s.entries.append(s.entries[0]), "general.architecture", "twice"),
    ("unknown value type", lambda s: setattr(s.entries[3], "kind", 13), "test.i8", "unknown type 13"),
    ("bool of 2", lambda s: _entry(s, "test.bool", gb.BOOL, b"\2"), "test.bool", "true or false"),
    ("endless text", lambda s: _entry(s, "general.name", gb.STRING, gb.u64(2**63)), "general.name", "at most"),
    ("endless list", lambda s: _entry(s, TOKENS, gb.ARRAY, gb.array(gb.STRING, [], 2**62)), TOKENS, "claims"),
    ("endless numbers", lambda s: _entry(s, TOKENS, gb.ARRAY, gb.array(gb.F64, [], 2**61)), TOKENS, "claims"),
    (
        "endless item",
        lambda s: _entry(s, TOKENS, gb.ARRAY, gb.array(gb.STRING, ["a"], 1)[:12] + gb.u64(2**64 - 1)),
        TOKENS,
        "beyond the end",
    ),
    ("list of unknown", lambda s: _entry(s, TOKENS, gb.ARRAY, gb.u32(77) + gb.u64(0)), TOKENS, "unknown type 77"),
    ("nesting", lambda s: _entry(s, "test.nested", gb.ARRAY, gb.nested(4)), "test.nested", "nested"),
    ("alignment 0", lambda s: s.set("general.alignment", gb.U32, 0), "general.alignment", "power of two"),
    ("alignment 48", lambda s: s.set("general.alignment", gb.U32, 48), "general.alignment", "power of two"),
    ("alignment 2^31", lambda s: s.set("general.alignment", gb.U32, 2**31), "general.alignment", "power of two"),
    ("alignment text", lambda s: s.set("general.alignment", gb.STRING, "32"), "general.alignment", "whole number"),
    ("tensor twice", lambda s: setattr(s.tensors[1], "name", EMBED.encode()), f"{EMBED}.name", "twice"),
    ("tensor unnamed", lambda s: setattr(s.tensors[1], "name", b""), "tensors[1].name", "plain text"),
    ("tensor name", lambda s: setattr(s.tensors[1], "name", b"\xff"), "tensors[1].name", "UTF-8"),
    ("no dimensions", lambda s: setattr(s.tensors[0], "n_dims", 0), f"{EMBED}.n_dims", "0 dimensions"),
    ("five dimensions", lambda s: setattr(s.tensors[0], "n_dims", 5), f"{EMBED}.n_dims", "5 dimensions"),
    ("dimension 0", lambda s: setattr(s.tensors[0], "dims", (64, 0)), f"{EMBED}.shape", "dimension of 0"),
    ("dimension -1", lambda s: setattr(s.tensors[0], "dims", (64, 2**64 - 1)), f"{EMBED}.offset", "file ends"),
    ("product 2^64", lambda s: setattr(s.tensors[0], "dims", (2**32, 2**32)), f"{EMBED}.offset", "file ends"),
    ("part of a block", lambda s: setattr(s.tensors[0], "dims", (48, 8)), f"{EMBED}.shape", "multiple of the 32"),
    ("unknown tensor type", lambda s: setattr(s.tensors[0], "kind", 99), f"{EMBED}.type", "unknown type 99"),
    ("retired tensor type", lambda s: setattr(s.tensors[0], "kind", 31), f"{EMBED}.type", "Q4_0_4_4"),
    ("misaligned", lambda s: setattr(s.tensors[1], "offset", 545), f"{NORM}.offset", "multiple of 32"),
    ("overlap", lambda s: setattr(s.tensors[1], "offset", 512), f"{NORM}.offset", "overlap"),
    ("beyond the end", lambda s: setattr(s.tensors[2], "offset", 832), "experts.weight.offset", "file ends"),
    ("far beyond", lambda s: setattr(s.tensors[2], "offset", 2**64 - 32), "experts.weight.offset", "file ends"),
    ("split", lambda s: s.set("split.count", gb.U16, 3), "split.count", "part 1 of a model split into 3"),
    ("odd split", lambda s: s.set("split.count", gb.STRING, "3"), "split.count", "whole number"),
]


@pytest.mark.parametrize(("change", "field", "words"), [row[1:] for row in DAMAGES], ids=[row[0] for row in DAMAGES])
def test_damage_is_named(write: Write, change: Callable[[gb.Spec], object], field: str, words: str) -> None:
    error = refusal(write(damage(change)))
    assert error.field == field
    assert words in str(error)


def test_truncation_at_every_field_is_refused(write: Write) -> None:
    blob, marks = gb.small().build()
    for place in [*marks, *range(1, 24), len(blob) - 1]:
        if place:
            assert refusal(write(blob[:place])).field
    assert refusal(write(b"")).field == "path"
    open_gguf(write(blob)).close()


def test_text_that_is_not_utf8(write: Write) -> None:
    spec = gb.small()
    spec.set("general.name", gb.STRING, gb.text(b"caf\xe9"))
    spec.set(TOKENS, gb.ARRAY, gb.array(gb.STRING, [b"a", b"\xf0\x28"]))
    with open_gguf(write(spec.bytes())) as file:
        assert file.metadata["general.name"] == "caf�"
        with pytest.raises(ModelFileError, match="item 1 of “tokenizer.ggml.tokens” is not valid UTF-8") as caught:
            file.metadata[TOKENS]
        assert caught.value.field == TOKENS


LOOKALIKES = [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
    (b"PK\x03\x04" + bytes(40), "zip archive"),
    (b"\n <!DOCTYPE html><html>404</html>", "web page"),
    (gb.u64(30) + b'{"w":{"dtype":"F32"}}' + bytes(30), "safetensors"),
    (b'{"model_type": "llama"}', "JSON"),
    (b"\x1f\x8b\x08" + bytes(30), "gzip"),
    (b"\x80\x02}q\0" + bytes(30), "pickle"),
    (b"tjgg" + bytes(30), "before GGUF"),
    (bytes(100), "unfinished download"),
    (b"just some text", "ends in .gguf"),
]


@pytest.mark.parametrize(("blob", "words"), LOOKALIKES, ids=[words for _, words in LOOKALIKES])
def test_other_files_are_recognised(write: Write, blob: bytes, words: str) -> None:
    error = refusal(write(blob))
    assert error.field == "magic"
    assert words in str(error)


def test_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is a folder" in str(refusal(tmp_path))
    assert "no file" in str(refusal(tmp_path / "absent.gguf"))
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "not an ordinary file" in str(refusal(tmp_path / "pipe.gguf"))
    (tmp_path / "secret.gguf").write_bytes(gb.small().bytes())

    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "permissions" in str(refusal(tmp_path / "secret.gguf"))
    with pytest.raises(ModelFileError, match="cannot be opened"):
        open_gguf("zero\0byte.gguf")


def test_closing(write: Write) -> None:
    file = open_gguf(write(gb.small().bytes()))
    held = file.tensors["token_embd.weight"].data
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1
    file.advise_dontneed()
    assert held[:4].tolist() == [0, 1, 2, 3]
    file.close()
    file.close()
    assert file.tensors == {}
    assert held[:4].tolist() == [0, 1, 2, 3]  # a view that is still held stays valid
    assert file.metadata["test.u8"] == 200
    file.advise_dontneed()


def test_closing_unmaps_and_lists_can_no_longer_be_read(write: Write) -> None:
    file = open_gguf(write(gb.small().bytes()))
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.metadata[TOKENS]
    assert isinstance(file._memory, mmap.mmap) and file._memory.closed


def test_long_texts_are_decoded_when_asked_for(write: Write) -> None:
    spec = gb.small()
    spec.set("tokenizer.chat_template", gb.STRING, "x" * 100_000)
    with open_gguf(write(spec.bytes())) as file:
        assert file.metadata["tokenizer.chat_template"] == "x" * 100_000
        assert file.metadata.get_str("tokenizer.chat_template") == "x" * 100_000
        assert file.metadata.length("tokenizer.chat_template") is None


def _crowded() -> gb.Spec:
    """A file at the reader's limits: keys, tensors and list items."""
    spec = gb.Spec()
    spec.entries = [gb.Entry(b"k%d" % i, gb.U8, b"\1") for i in range(MAX_KEYS - 1)]
    spec.entries.append(gb.Entry(b"list", gb.ARRAY, gb.u32(gb.STRING) + gb.u64(MAX_ITEMS) + bytes(8 * MAX_ITEMS)))
    spec.tensors = [gb.TensorSpec(b"t%d" % i, (1,), 24, 32 * i) for i in range(MAX_TENSORS)]
    spec.data = bytes(32 * MAX_TENSORS)
    return spec


def _open_crowded(path: Path) -> None:
    with open_gguf(path) as file:
        assert (len(file.tensors), len(file.metadata)) == (MAX_TENSORS, MAX_KEYS)


def _measure(path: Path) -> tuple[str, str, float, int]:
    return measured(path, _open_crowded)


def test_memory_and_time_at_the_limits(write: Write) -> None:
    """In a process of its own, so that memory which others have freed does not hide what is taken."""
    path = write(_crowded().bytes())
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        ending, detail, seconds, growth = pool.submit(_measure, path).result()
    assert (ending, detail) == ("opened", "")
    assert seconds < 2.0
    assert growth < READER_BYTES + path.stat().st_size


def test_past_the_limits(write: Write) -> None:
    spec = gb.small()
    spec.set("list", gb.ARRAY, gb.u32(gb.STRING) + gb.u64(MAX_ITEMS + 1) + bytes(8 * MAX_ITEMS + 8))
    assert refusal(write(spec.bytes())).field == "list"
    many = gb.Spec(tensors=[gb.TensorSpec(b"t%d" % i, (1,), 24, 0) for i in range(MAX_TENSORS + 1)])
    assert refusal(write(many.bytes())).field == "tensor_count"
    keys = gb.Spec(entries=[gb.Entry(b"k%d" % i, gb.U8, b"\1") for i in range(MAX_KEYS + 1)])
    assert refusal(write(keys.bytes())).field == "metadata_count"
