"""A stand-in for NVIDIA's driver: a libcuda.so.1 whose GPU is memory of the host.

It keeps to what is written of the driver: calls need a current context, memory
that is registered once is refused a second time, and a mapping that may not be
written is registered with the flag for that alone, by a GPU that knows it. Which
error the driver has for a refused mapping is not written; here it is 1.
"""

import atexit
import functools
import shutil
import subprocess
import tempfile
import unittest

from .daemon import skip

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ptr;
enum { OK, INVALID, NO_DEVICE = 100, NO_DEVICE_OF_THIS_NUMBER, NO_CONTEXT = 201, DESTROYED = 709, TWICE = 712, UNKNOWN = 713, NOT_SUPPORTED = 801 };

/* What a test sets: */
int devices = 2, read_only = 1, refuses, lost, no_batches;
/* and what it looks at: */
int retained, mapped, unlocked, batches, last_flags, last_device = -1;

static struct { ptr at, end; } locked[64];
static __thread int stack[8], depth;

static int here(void) { return depth ? OK : NO_CONTEXT; }
static void set(int *p, const char *name) { if (getenv(name)) *p = atoi(getenv(name)); }

int cuInit(unsigned flags) {
  set(&devices, "STUB_DEVICES"); set(&read_only, "STUB_READ_ONLY"); set(&refuses, "STUB_REFUSES");
  return devices ? OK : NO_DEVICE;
}
int cuDriverGetVersion(int *v) { *v = 13000; return OK; }
int cuDeviceGetCount(int *n) { *n = devices; return OK; }
int cuDeviceGet(int *d, int i) { if (i < 0 || i >= devices) return NO_DEVICE_OF_THIS_NUMBER; *d = i; return OK; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "stand-in %d", d); return OK; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 113 ? read_only : a == 99; return OK; }
int cuDevicePrimaryCtxRetain(void **c, int d) { retained++; last_device = d; *c = (void *)(long)(d + 1); return OK; }
int cuDevicePrimaryCtxRelease_v2(int d) { retained--; return OK; }
int cuCtxGetCurrent(void **c) { *c = depth ? (void *)(long)stack[depth - 1] : 0; return OK; }
int cuCtxGetDevice(int *d) { if (!depth) return NO_CONTEXT; *d = stack[depth - 1] - 1; return OK; }
int cuCtxPushCurrent_v2(void *c) { if (lost) return DESTROYED; if (!c || depth == 8) return INVALID; stack[depth++] = (int)(long)c; return OK; }
int cuCtxPopCurrent_v2(void **c) { if (!depth) return NO_CONTEXT; *c = (void *)(long)stack[--depth]; return OK; }
int cuCtxSynchronize(void) { return here(); }

static int writable(ptr at) {
  char line[512], rights[5]; ptr from, to; int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (!found && maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%llx-%llx %4s", &from, &to, rights) == 3 && from <= at && at < to)
      found = rights[1] == 'w' ? 1 : -1;
  if (maps) fclose(maps);
  return found > 0;
}
int cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
  ptr at = (ptr)p; int free = -1;
  last_flags = flags;
  if (here()) return NO_CONTEXT;
  if (refuses) return refuses;
  if (!p || !n || flags & ~15u) return INVALID;
  if (flags & 8 && !read_only) return NOT_SUPPORTED;
  if (!(flags & 8) && !writable(at)) return INVALID;
  for (int i = 63; i >= 0; i--) {
    if (!locked[i].at) free = i;
    else if (at < locked[i].end && at + n > locked[i].at) return TWICE;
  }
  locked[free].at = at; locked[free].end = at + n; mapped++;
  return OK;
}
int cuMemHostUnregister(void *p) {
  if (here()) return NO_CONTEXT;
  for (int i = 0; i < 64; i++)
    if (p && locked[i].at == (ptr)p) { locked[i].at = 0; mapped--; unlocked++; return OK; }
  return UNKNOWN;
}

void forget(void) { memset(locked, 0, sizeof locked); mapped = 0; }

int cuMemAlloc_v2(ptr *p, size_t n) { *p = (ptr)malloc(n); return here(); }
int cuMemFree_v2(ptr p) { free((void *)p); return here(); }
int cuMemAllocHost_v2(void **p, size_t n) { *p = malloc(n); return here(); }
int cuMemFreeHost(void *p) { free(p); return here(); }
int cuMemsetD8_v2(ptr p, unsigned char c, size_t n) { memset((void *)p, c, n); return here(); }
int cuStreamCreate(void **s, unsigned flags) { *s = (void *)1; return here(); }
int cuStreamSynchronize(void *s) { return here(); }
int cuMemcpyHtoDAsync_v2(ptr to, const void *from, size_t n, void *s) { memcpy((void *)to, from, n); return here(); }
int cuMemcpyDtoHAsync_v2(void *to, ptr from, size_t n, void *s) { memcpy(to, (void *)from, n); return here(); }
int cuMemcpyAsync(ptr to, ptr from, size_t n, void *s) { if (!s || !n) return INVALID; memcpy((void *)to, (void *)from, n); return here(); }
struct attributes { unsigned order; struct { unsigned type; int id; } from, to; unsigned flags; };
int cuMemcpyBatchAsync(ptr *to, ptr *from, size_t *size, size_t n, struct attributes *a, size_t *first, size_t of, size_t *failed, void *s) {
  if (here()) return NO_CONTEXT;
  if (no_batches) return NOT_SUPPORTED;
  if (!s || !n || of != 1 || first[0] || a->order != 1 || a->flags) return INVALID;
  for (size_t i = 0; i < n; i++) if (cuMemcpyAsync(to[i], from[i], size[i], s)) { *failed = i; return INVALID; }
  batches++;
  return OK;
}
int cuGetErrorName(int code, const char **s) {
  *s = code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : code == TWICE
     ? "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" : code == INVALID ? "CUDA_ERROR_INVALID_VALUE" : 0;
  return *s ? OK : INVALID;
}
"""


@functools.lru_cache(maxsize=None)
def _built(compiler: str) -> str:
    folder = tempfile.mkdtemp(prefix="kvstored-driver-")
    atexit.register(shutil.rmtree, folder, True)
    command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/libcuda.so.1"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return folder


def folder(test: unittest.TestCase) -> str:
    """Where the library is, built once."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        skip(test, "there is no C compiler")
    assert compiler is not None
    return _built(compiler)
