"""What shares chunks of llama.cpp: equal bytes of the model, and nothing less."""

import os
import shutil
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kvstored.llamacpp import ControlVector, Engine, Lora, PrefixCache, files
from llamacpp import model as llama_model

from .daemon import enter
from .llama_case import LlamaCase, text


class Spaces(LlamaCase):
    def setUp(self) -> None:
        self.kv = self.client(self.daemon())
        self.llm = self.llama()
        self.engine = Engine.of(self.llm, self.llm.functions)._replace(mapped=False)  # other files are told here

    def space(self, **changed: Any) -> Any:
        return PrefixCache(self.kv, self.engine._replace(**changed)).space

    def test_one_weight(self) -> None:
        """Metadata and size are equal, and no chunk is shared."""
        other = llama_model.change_one_weight(self.model, f"{self.folder}/other.gguf")
        self.assertEqual(os.path.getsize(other), os.path.getsize(self.model))
        prompt, cache = text(1, 200), self.cache(self.kv, self.llm)
        self.fill(self.llm, cache, prompt)
        llm = self.llama(other)
        theirs = self.cache(self.kv, llm)
        self.assertEqual(theirs.space.model, cache.space.model)
        self.check(llm, theirs, prompt, 0)
        self.fill(llm, theirs, prompt)
        self.check(llm, theirs, prompt, 192)
        self.check(self.llm, cache, prompt, 192)

    def test_the_same_bytes_elsewhere(self) -> None:
        copy = shutil.copy(self.model, f"{self.folder}/copy.gguf")
        prompt = text(2, 200)
        self.fill(self.llm, self.cache(self.kv, self.llm), prompt)
        llm = self.llama(copy)
        self.check(llm, self.cache(self.kv, llm), prompt, 192)

    def test_adapters(self) -> None:
        path = llama_model.adapter(f"{self.folder}/lora.gguf", self.shape)
        prompt, plain = text(3, 200), self.cache(self.kv, self.llm)
        self.fill(self.llm, plain, prompt)
        spaces = {plain.space}
        for scale in (1.0, 0.5):
            llm = self.llama(lora_path=path, lora_scale=scale)
            cache = self.cache(self.kv, llm)
            self.assertNotIn(cache.space, spaces)
            spaces.add(cache.space)
            llm.reset()
            self.assertEqual(cache.restore(prompt), 0)
            self.fill(llm, cache, prompt)
            llm._ctx.kv_cache_clear()
            self.assertEqual(cache.restore(prompt), 192)

    def test_what_is_in_a_space(self) -> None:
        lora = llama_model.adapter(f"{self.folder}/one.gguf", self.shape, 1)
        second = llama_model.adapter(f"{self.folder}/two.gguf", self.shape, 2)
        vector = bytes(64)
        differing = [
            {},
            {"loras": [Lora(lora)]},
            {"loras": [Lora(second)]},
            {"loras": [Lora(lora), Lora(second)]},
            {"loras": [Lora(lora, 0.25)]},
            {"control": ControlVector(vector, 0, 1)},
            {"control": ControlVector(vector, 1, 1)},
            {"control": ControlVector(bytes(63) + b"1", 0, 1)},
            {"overrides": {"llama.attention.layer_norm_rms_epsilon": 1e-6}},
            {"library": "another build"},
            {"files": [self.model, lora]},
        ]
        for field in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_orig_ctx", "type_k", "type_v", "attention_type"):
            differing.append({"params": Changed(self.engine.params, field)})
        spaces = [self.space(**changed) for changed in differing]
        self.assertEqual(len(set(spaces)), len(differing))
        for same in (
            {"loras": [Lora(second), Lora(lora)]},  # their sum has no order
            {"params": Changed(self.engine.params, "n_threads")},
            {"params": Changed(self.engine.params, "n_batch")},
        ):
            self.assertIn(self.space(**same), spaces)
        cache = PrefixCache(self.kv, self.engine, namespace="n", salt="s", chunk_tokens=64)
        self.assertNotIn(cache.space, spaces)
        self.assertNotIn("salt='s'", repr(cache.space))

    def test_longer_than_an_overridden_training(self) -> None:
        """Rope factors are others there, whatever the file says."""
        llm = self.llama(n_ctx=1024)
        short, overrides = Engine.of(llm, llm.functions), {"llama.rope.scaling.original_context_length": 1024}
        self.assertEqual(PrefixCache(self.kv, short).space, self.space())
        self.assertNotEqual(PrefixCache(self.kv, short._replace(overrides=overrides)).space, self.space(overrides=overrides))

    def test_shards(self) -> None:
        names = [f"{self.folder}/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
        self.assertEqual(files.shards(names[0]), names)
        self.assertEqual(files.shards(self.model), [self.model])
        for name in names:
            Path(name).write_bytes(name.encode())
        whole = self.space(files=names[:1])
        Path(names[2]).write_bytes(b"other")
        self.assertNotEqual(self.space(files=names[:1]), whole)
        os.remove(names[1])
        with self.assertRaises(FileNotFoundError):
            self.space(files=names[:1])

    def test_a_build_without_a_name(self) -> None:
        functions = mock.Mock(wraps=self.engine.functions, __version__="")
        with self.assertRaisesRegex(ValueError, "library"):
            self.space(functions=functions)

    def test_a_model_that_changes(self) -> None:
        path = shutil.copy(self.model, f"{self.folder}/changing.gguf")
        llm, prompt = self.llama(path), text(4, 100)
        cache = self.cache(self.kv, llm)
        self.fill(llm, cache, prompt)
        os.utime(path)
        with self.assertLogs("kvstored", "WARNING"):
            self.assertEqual(cache.store(prompt), 0)
        llm._ctx.kv_cache_clear()
        self.assertEqual(cache.restore(prompt), 0)

    def test_a_model_that_was_replaced(self) -> None:
        """The bytes on disk are not those that were loaded."""
        path = shutil.copy(self.model, f"{self.folder}/replaced.gguf")
        llm = self.llama(path)
        other = llama_model.change_one_weight(self.model, f"{self.folder}/new.gguf")
        os.replace(other, path)
        with self.assertRaisesRegex(ValueError, "replaced since the model was loaded"):
            self.cache(self.kv, llm)

    def test_a_model_that_was_renamed_and_replaced(self) -> None:
        """No file is mapped by its path. What was loaded is found under its new one."""
        path = shutil.copy(self.model, f"{self.folder}/renamed.gguf")
        llm = self.llama(path)
        self.assertTrue(Engine.of(llm, llm.functions).mapped)
        link = f"{self.folder}/another-name.gguf"
        os.link(path, link)
        llm.model_path = link
        self.assertEqual(self.cache(self.kv, llm).space.revision, self.space().revision)
        llm.model_path = path
        os.rename(path, f"{self.folder}/old.gguf")
        shutil.copy(llama_model.change_one_weight(self.model, f"{self.folder}/changed.gguf"), path)
        with self.assertRaisesRegex(ValueError, "renamed and replaced since"):
            self.cache(self.kv, llm)

    def test_files_that_need_not_be_mapped(self) -> None:
        for said in ({"use_mmap": False, "n_gpu_layers": 0}, {"use_mmap": True, "n_gpu_layers": -1}, {}):
            self.llm.model_params = SimpleNamespace(**said)
            engine = Engine.of(self.llm, self.llm.functions)
            self.assertFalse(engine.mapped)
            copy = shutil.copy(self.model, f"{self.folder}/read.gguf")
            self.assertEqual(PrefixCache(self.kv, engine._replace(files=[copy])).space, self.space())


class Changed:
    """Parameters of a context of which one field is another."""

    def __init__(self, params: Any, field: str) -> None:
        self._params, self._field = params, field

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._params, name)
        return value + 1 if name == self._field else value


class Files(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "file")
        enter(self, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": f"{folder.name}/cache"}))
        self.cache = Path(folder.name, "cache")
        self.path.write_bytes(b"abc")

    def settled(self) -> files.File:
        """The file, with a clock that says it was written long ago."""
        return files.find(str(self.path))

    def digest(self, seconds_later: float = 10) -> str:
        with mock.patch.object(files.time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + int(seconds_later * 1e9)):
            return files.digest(self.settled())

    def kept(self) -> int:
        return len(list(self.cache.rglob("*.json")))

    def test_computed_once(self) -> None:
        abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        self.assertEqual(self.digest(), abc)
        self.assertEqual(self.kept(), 1)
        with mock.patch("builtins.open", side_effect=AssertionError("read again")):
            self.assertEqual(files._kept(self.settled()), abc)
        link = self.path.with_name("link")
        link.symlink_to(self.path)
        self.assertEqual(files.find(str(link)), self.settled())

    def test_read_again_when_it_changed(self) -> None:
        first = self.digest()
        before = self.path.stat()
        self.path.write_bytes(b"abd")
        os.utime(self.path, ns=(before.st_atime_ns, before.st_mtime_ns))  # size, mtime and inode are as before
        self.assertNotEqual(self.digest(), first)
        self.path.unlink()
        self.path.write_bytes(b"abc")
        self.assertEqual(self.digest(), first)

    def test_what_was_just_written_is_not_remembered(self) -> None:
        self.digest(0)
        self.assertEqual(self.kept(), 0)

    def test_a_spoiled_memory(self) -> None:
        first = self.digest()
        (kept,) = self.cache.rglob("*.json")
        for spoiled in ("", "{}", "[1]", '{"file": [], "sha256": "00"}', kept.read_text().replace(first, "x" * 64)):
            kept.write_text(spoiled)
            self.assertEqual(self.digest(), first)

    def test_changed_while_it_is_read(self) -> None:
        file = self.settled()
        self.path.write_bytes(b"abcd")
        with self.assertRaisesRegex(ValueError, "changes while it is read"):
            files.digest(file)
        self.assertFalse(files.unchanged([file]))
        self.path.unlink()
        self.assertFalse(files.unchanged([file]))
