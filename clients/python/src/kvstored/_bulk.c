/* Copies payloads and computes their checksum, XXH3-64 with seed 0, in one pass
 * over memory and without the interpreter's lock. bulk.py says what the functions
 * take; this file checks it, since a wrong address ends the process.
 *
 * A payload is a run of pieces, each with an address to copy from and one to copy
 * to. Its sum is of the bytes that are stored: each is read once, into a register
 * or into a buffer here, since another process may be changing it.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || UINTPTR_MAX != UINT64_MAX
#error "64 bits, little end first: elsewhere bulk.py does without this file"
#endif

typedef uint64_t u64;
typedef unsigned char byte;

/* ---- XXH3-64 ---------------------------------------------------------------- */

enum {
    STRIPE = 64,       /* bytes that are taken in together */
    BLOCK_STRIPES = 16, /* after so many the lanes are scrambled */
    SHORT = 240,       /* bytes that the short forms end at */
    SECRET = 192,
};

static const u64 P32_1 = 0x9E3779B1, P32_2 = 0x85EBCA77, P32_3 = 0xC2B2AE3D;
static const u64 P64_1 = 0x9E3779B185EBCA87, P64_2 = 0xC2B2AE3D27D4EB4F, P64_3 = 0x165667B19E3779F9;
static const u64 P64_4 = 0x85EBCA77C2B2AE63, P64_5 = 0x27D4EB2F165667C5;
static const u64 MIX_1 = 0x165667919E3779F9, MIX_2 = 0x9FB21C651E98DF25;

static const byte secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline u64 word(const byte *p)
{
    u64 w;
    memcpy(&w, p, sizeof w);
    return w;
}

static inline u64 half(const byte *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* The low and the high half of a product, folded. */
static inline u64 fold(u64 a, u64 b)
{
    unsigned __int128 p = (unsigned __int128)a * b;
    return (u64)p ^ (u64)(p >> 64);
}

static inline u64 turn(u64 h, int by) { return h << by | h >> (64 - by); }

static u64 avalanche(u64 h)
{
    h = (h ^ h >> 37) * MIX_1;
    return h ^ h >> 32;
}

static u64 avalanche_tiny(u64 h)
{
    h = (h ^ h >> 33) * P64_2;
    h = (h ^ h >> 29) * P64_3;
    return h ^ h >> 32;
}

static inline u64 mix(const byte *p, const byte *s) { return fold(word(p) ^ word(s), word(p + 8) ^ word(s + 8)); }

/* The sum of at most SHORT bytes. */
static u64 sum_short(const byte *p, size_t n)
{
    const byte *end = p + n;
    if (n == 0)
        return avalanche_tiny(word(secret + 56) ^ word(secret + 64));
    if (n <= 3) {
        u64 h = (u64)p[0] << 16 | (u64)p[n >> 1] << 24 | end[-1] | n << 8;
        return avalanche_tiny(h ^ half(secret) ^ half(secret + 4));
    }
    if (n <= 8) {
        u64 h = (half(end - 4) + (half(p) << 32)) ^ word(secret + 8) ^ word(secret + 16);
        h = (h ^ turn(h, 49) ^ turn(h, 24)) * MIX_2;
        h = (h ^ ((h >> 35) + n)) * MIX_2;
        return h ^ h >> 28;
    }
    if (n <= 16) {
        u64 low = word(p) ^ word(secret + 24) ^ word(secret + 32);
        u64 high = word(end - 8) ^ word(secret + 40) ^ word(secret + 48);
        return avalanche(n + __builtin_bswap64(low) + high + fold(low, high));
    }
    u64 h = n * P64_1;
    if (n <= 128) {
        for (size_t i = (n - 1) / 32 + 1; i-- > 0;)
            h += mix(p + 16 * i, secret + 32 * i) + mix(end - 16 * (i + 1), secret + 32 * i + 16);
        return avalanche(h);
    }
    for (size_t i = 0; i < 8; i++)
        h += mix(p + 16 * i, secret + 16 * i);
    h = avalanche(h);
    for (size_t i = 8; i < n / 16; i++)
        h += mix(p + 16 * i, secret + 16 * (i - 8) + 3);
    return avalanche(h + mix(end - 16, secret + 136 - 17));
}

/* Takes in stripes, the first of which is number ``at`` of its payload, and stores
 * them where ``to`` is not NULL. */
typedef void Take(u64 *lanes, size_t at, byte *to, const byte *from, size_t stripes);

static void take_words(u64 *lanes, size_t at, byte *to, const byte *from, size_t stripes)
{
    for (; stripes > 0; stripes--, at++, from += STRIPE) {
        const byte *s = secret + 8 * (at % BLOCK_STRIPES);
        u64 words[8];
        memcpy(words, from, STRIPE);
        __asm__("" : "+m"(words)); /* what is summed is what is stored: nothing is read again */
        if (to != NULL) {
            memcpy(to, words, STRIPE);
            to += STRIPE;
        }
        for (int i = 0; i < 8; i++) {
            u64 mixed = words[i] ^ word(s + 8 * i);
            lanes[i ^ 1] += words[i];
            lanes[i] += (mixed & 0xFFFFFFFF) * (mixed >> 32);
        }
        if (at % BLOCK_STRIPES == BLOCK_STRIPES - 1)
            for (int i = 0; i < 8; i++)
                lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ word(secret + SECRET - STRIPE + 8 * i)) * P32_1;
    }
}

static Take *take = take_words;

#if defined(__x86_64__) && !defined(WITHOUT_VECTORS)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline __m256i scramble(__m256i lane, const byte *s)
{
    const __m256i prime = _mm256_set1_epi64x(0x9E3779B1);
    lane = _mm256_xor_si256(lane, _mm256_srli_epi64(lane, 47));
    lane = _mm256_xor_si256(lane, _mm256_loadu_si256((const __m256i *)s));
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(lane, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(lane, prime), _mm256_slli_epi64(high, 32));
}

AVX2 static inline __m256i accumulate(__m256i lane, byte *to, const byte *from, const byte *s)
{
    __m256i words = _mm256_loadu_si256((const __m256i *)from);
    __asm__("" : "+x"(words)); /* what is summed is what is stored: nothing is read again */
    if (to != NULL)
        _mm256_storeu_si256((__m256i *)to, words);
    __m256i mixed = _mm256_xor_si256(words, _mm256_loadu_si256((const __m256i *)s));
    lane = _mm256_add_epi64(lane, _mm256_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm256_add_epi64(lane, _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32)));
}

AVX2 static inline __attribute__((always_inline)) void take_avx2_(u64 *lanes, size_t at, byte *to, const byte *from, size_t stripes)
{
    __m256i low = _mm256_loadu_si256((const __m256i *)lanes), high = _mm256_loadu_si256((const __m256i *)(lanes + 4));
    while (stripes > 0) {
        size_t first = at % BLOCK_STRIPES, run = BLOCK_STRIPES - first;
        if (run > stripes)
            run = stripes;
        for (size_t i = 0; i < run; i++) {
            const byte *s = secret + 8 * (first + i);
            low = accumulate(low, to, from, s);
            high = accumulate(high, to == NULL ? NULL : to + 32, from + 32, s + 32);
            from += STRIPE;
            if (to != NULL)
                to += STRIPE;
        }
        if (first + run == BLOCK_STRIPES) {
            low = scramble(low, secret + SECRET - STRIPE);
            high = scramble(high, secret + SECRET - STRIPE + 32);
        }
        at += run;
        stripes -= run;
    }
    _mm256_storeu_si256((__m256i *)lanes, low);
    _mm256_storeu_si256((__m256i *)(lanes + 4), high);
}

AVX2 static void take_avx2(u64 *lanes, size_t at, byte *to, const byte *from, size_t stripes)
{
    if (to == NULL)
        take_avx2_(lanes, at, NULL, from, stripes);
    else
        take_avx2_(lanes, at, to, from, stripes);
}
#endif

/* The sum of a payload whose pieces come one after the other. */
typedef struct {
    u64 lanes[8];
    size_t size, taken, all; /* bytes of the payload; stripes taken in, and those to take in before the last bytes */
    size_t filled;           /* bytes of ``part``; of all the payload where it is short */
    byte part[SHORT];        /* what is not taken in */
    byte last[STRIPE];       /* the stripe taken in last */
} Sum;

static void sum_begin(Sum *s, size_t size)
{
    const u64 lanes[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    memcpy(s->lanes, lanes, sizeof lanes);
    s->size = size;
    s->all = size > SHORT ? (size - 1) / STRIPE : 0;
    s->taken = s->filled = 0;
}

/* Copies through ``part``. */
static void sum_part(Sum *s, byte *to, const byte *from, size_t n)
{
    byte *part = s->part + s->filled;
    memcpy(part, from, n);
    __asm__("" : : "r"(part) : "memory"); /* it is read once */
    if (to != NULL)
        memcpy(to, part, n);
    s->filled += n;
}

static void sum_piece(Sum *s, byte *to, const byte *from, size_t n)
{
    while (n > 0) {
        size_t did;
        if (s->taken == s->all) { /* the last bytes, or all of a short payload */
            sum_part(s, to, from, n);
            return;
        }
        if (s->filled > 0 || n < STRIPE) {
            did = STRIPE - s->filled < n ? STRIPE - s->filled : n;
            sum_part(s, to, from, did);
            if (s->filled == STRIPE) {
                take(s->lanes, s->taken++, NULL, s->part, 1);
                memcpy(s->last, s->part, STRIPE);
                s->filled = 0;
            }
        } else {
            size_t stripes = n / STRIPE < s->all - s->taken ? n / STRIPE : s->all - s->taken;
            did = stripes * STRIPE;
            take(s->lanes, s->taken, to, from, stripes);
            s->taken += stripes;
            memcpy(s->last, (to != NULL ? to : from) + did - STRIPE, STRIPE);
        }
        from += did;
        n -= did;
        if (to != NULL)
            to += did;
    }
}

static u64 sum_end(Sum *s)
{
    if (s->size <= SHORT)
        return sum_short(s->part, s->size);
    byte stripe[STRIPE];
    memcpy(stripe, s->last + s->filled, STRIPE - s->filled);
    memcpy(stripe + STRIPE - s->filled, s->part, s->filled);
    for (int i = 0; i < 8; i++) {
        u64 w = word(stripe + 8 * i), mixed = w ^ word(secret + SECRET - STRIPE - 7 + 8 * i);
        s->lanes[i ^ 1] += w;
        s->lanes[i] += (mixed & 0xFFFFFFFF) * (mixed >> 32);
    }
    u64 h = s->size * P64_1;
    for (int i = 0; i < 8; i += 2)
        h += fold(s->lanes[i] ^ word(secret + 11 + 8 * i), s->lanes[i + 1] ^ word(secret + 19 + 8 * i));
    return avalanche(h);
}

/* ---- pieces ----------------------------------------------------------------- */

enum {
    /* Below so many bytes a call keeps the lock: other threads wait for some 50 us at
     * most, where giving it up can make this one wait for a whole switch interval. */
    KEEPS_LOCK = 256 << 10,
    /* Bytes of one memcpy at most: a longer one stores past the caches, which is
     * slower where what is copied is read next. */
    AT_ONCE = 512 << 10,
};

/* What a call does. The words are those of the caller's bytes. */
typedef struct {
    const byte *pieces, *counts;
    size_t width;              /* words of a piece: to, from, bytes; without the first nothing is stored */
    size_t n_pieces, n_counts; /* without counts nothing is summed */
    size_t total;              /* bytes */
    double until;
    u64 *sums;
    size_t done; /* payloads that were summed */
} Job;

static void piece(const Job *job, size_t i, byte **to, const byte **from, size_t *n)
{
    const byte *p = job->pieces + 8 * job->width * i;
    *to = NULL;
    if (job->width == 3) {
        *to = (byte *)word(p);
        p += 8;
    }
    *from = (const byte *)word(p);
    *n = word(p + 8);
}

static int late(const Job *job)
{
    struct timespec now;
    if (job->until == INFINITY)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return !(now.tv_sec + now.tv_nsec * 1e-9 < job->until);
}

static void work(Job *job)
{
    byte *to;
    const byte *from;
    size_t n, i = 0;
    if (job->n_counts == 0)
        for (; i < job->n_pieces && !late(job); i++) {
            piece(job, i, &to, &from, &n);
            for (size_t at = 0; at < n; at += AT_ONCE)
                memcpy(to + at, from + at, n - at < AT_ONCE ? n - at : AT_ONCE);
        }
    for (job->done = 0; job->done < job->n_counts && !late(job); job->done++) {
        size_t end = i + word(job->counts + 8 * job->done), size = 0;
        Sum sum;
        for (size_t k = i; k < end; k++) {
            piece(job, k, &to, &from, &n);
            size += n;
        }
        sum_begin(&sum, size);
        for (; i < end; i++) {
            piece(job, i, &to, &from, &n);
            sum_piece(&sum, to, from, n);
        }
        job->sums[job->done] = sum_end(&sum);
    }
}

static void work_unlocked(Job *job)
{
    if (job->total < KEEPS_LOCK) {
        work(job);
        return;
    }
    PyThreadState *state = PyEval_SaveThread();
    work(job);
    PyEval_RestoreThread(state);
}

/* The bytes of an object of words; their number. -1 and an exception if it is none. */
static Py_ssize_t words(PyObject *of, const char *name, size_t width, const byte **p)
{
    char *at;
    Py_ssize_t n;
    if (!PyBytes_Check(of)) {
        PyErr_Format(PyExc_TypeError, "%s: want bytes, as packed() makes them", name);
        return -1;
    }
    if (PyBytes_AsStringAndSize(of, &at, &n) < 0)
        return -1;
    if (n % (8 * width) != 0) {
        PyErr_Format(PyExc_ValueError, "%s: %zd bytes are not a multiple of %zu", name, n, 8 * width);
        return -1;
    }
    *p = (const byte *)at;
    return n / (8 * width);
}

/* Whether no piece leaves the address space, is nowhere, or lies over its copy. */
static int check_piece(Job *job, size_t i, byte *to, const byte *from, size_t n)
{
    const char *wrong = NULL;
    u64 a = (u64)to, b = (u64)from;
    if (n > PY_SSIZE_T_MAX || a + n < a || b + n < b || __builtin_add_overflow(job->total, n, &job->total) ||
        job->total > PY_SSIZE_T_MAX)
        wrong = "goes beyond the end of memory";
    else if (n > 0 && (b == 0 || (job->width == 3 && a == 0)))
        wrong = "has no address";
    else if (n > 0 && job->width == 3 && a < b + n && b < a + n)
        wrong = "lies over the bytes it is copied from";
    if (wrong != NULL)
        PyErr_Format(PyExc_ValueError, "piece %zu of %zu bytes %s", i, n, wrong);
    return wrong == NULL ? 0 : -1;
}

static int check(Job *job)
{
    byte *to;
    const byte *from;
    size_t n, counted = 0;
    for (size_t i = 0; i < job->n_pieces; i++) {
        piece(job, i, &to, &from, &n);
        if (check_piece(job, i, to, from, n) < 0)
            return -1;
    }
    for (size_t i = 0; i < job->n_counts; i++)
        if (__builtin_add_overflow(counted, word(job->counts + 8 * i), &counted)) {
            counted = SIZE_MAX;
            break;
        }
    if ((job->n_counts > 0 || job->width == 2) && counted != job->n_pieces) {
        PyErr_Format(PyExc_ValueError, "counts: they add up to %zu pieces, there are %zu", counted, job->n_pieces);
        return -1;
    }
    return 0;
}

static PyObject *run(Job *job, PyObject *pieces, PyObject *counts)
{
    Py_ssize_t n = words(pieces, "pieces", job->width, &job->pieces), m = 0;
    if (n < 0 || (counts != NULL && (m = words(counts, "counts", 1, &job->counts)) < 0))
        return NULL;
    job->n_pieces = n;
    job->n_counts = m;
    if (check(job) < 0)
        return NULL;
    job->sums = PyMem_Malloc(8 * (job->n_counts + 1));
    if (job->sums == NULL)
        return PyErr_NoMemory();
    work_unlocked(job);
    PyObject *list = PyList_New(job->done);
    for (size_t i = 0; list != NULL && i < job->done; i++) {
        PyObject *sum = PyLong_FromUnsignedLongLong(job->sums[i]);
        if (sum == NULL || PyList_SetItem(list, i, sum) < 0)
            Py_CLEAR(list);
    }
    PyMem_Free(job->sums);
    return list;
}

static PyObject *bulk_copy(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"pieces", "counts", "until", NULL};
    Job job = {.width = 3, .until = INFINITY};
    PyObject *pieces, *counts = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|Od:copy", names, &pieces, &counts, &job.until))
        return NULL;
    return run(&job, pieces, counts);
}

static PyObject *bulk_sums(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"pieces", "counts", NULL};
    Job job = {.width = 2, .until = INFINITY};
    PyObject *pieces, *counts;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO:sums", names, &pieces, &counts))
        return NULL;
    return run(&job, pieces, counts);
}

/* ---- objects ---------------------------------------------------------------- */

/* The buffers of objects. Headers have them for 3.11 and later only, where they joined
 * the stable ABI, but they are the same in 3.10. */
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} View;

extern int PyObject_GetBuffer(PyObject *of, View *view, int flags);
extern void PyBuffer_Release(View *view);

static PyObject *bulk_address(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"buffer", "writable", NULL};
    PyObject *of;
    View view;
    int writable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|p:address", names, &of, &writable) ||
        PyObject_GetBuffer(of, &view, writable) < 0)
        return NULL;
    PyObject *at = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return at;
}

/* A row of two, as borrowed references. */
static int row(PyObject *rows, Py_ssize_t i, PyObject **first, PyObject **second)
{
    PyObject *pair = PyTuple_GetItem(rows, i);
    if (pair == NULL || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_Format(PyExc_TypeError, "row %zd: want a tuple of two", i);
        return -1;
    }
    *first = PyTuple_GetItem(pair, 0);
    *second = PyTuple_GetItem(pair, 1);
    return 0;
}

/* Puts down a piece, and checks it. */
static int put(Job *job, size_t i, u64 to, u64 from, u64 n)
{
    u64 three[3] = {to, from, n};
    memcpy((byte *)job->pieces + 24 * i, three, sizeof three);
    return check_piece(job, i, (byte *)to, (const byte *)from, n);
}

static PyObject *read_rows(Job *job, PyObject *rows)
{
    PyObject *out = PyList_New(job->n_pieces);
    for (size_t i = 0; out != NULL && i < job->n_pieces; i++) {
        PyObject *at, *size, *payload;
        u64 from;
        Py_ssize_t n;
        if (row(rows, i, &at, &size) < 0 || ((from = PyLong_AsUnsignedLongLong(at)) == (u64)-1 && PyErr_Occurred()) ||
            ((n = PyLong_AsSsize_t(size)) == -1 && PyErr_Occurred())) {
            Py_CLEAR(out);
        } else if (n < 0) {
            PyErr_Format(PyExc_ValueError, "row %zu: %zd bytes", i, n);
            Py_CLEAR(out);
        } else if ((payload = PyBytes_FromStringAndSize(NULL, n)) == NULL || PyList_SetItem(out, i, payload) < 0 ||
                   put(job, i, (u64)PyBytes_AsString(payload), from, n) < 0) {
            Py_CLEAR(out);
        }
    }
    if (out == NULL)
        return NULL;
    work_unlocked(job);
    for (size_t i = 0; out != NULL && i < job->n_pieces; i++) {
        PyObject *pair = Py_BuildValue("OK", PyList_GetItem(out, i), (unsigned long long)job->sums[i]);
        if (pair == NULL || PyList_SetItem(out, i, pair) < 0)
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *write_rows(Job *job, PyObject *rows)
{
    View *views = PyMem_Malloc(sizeof(View) * (job->n_pieces + 1));
    size_t i, held = 0;
    int wrong = views == NULL;
    if (wrong)
        PyErr_NoMemory();
    for (i = 0; !wrong && i < job->n_pieces; i++) {
        PyObject *at, *of;
        u64 to;
        wrong = row(rows, i, &at, &of) < 0 || ((to = PyLong_AsUnsignedLongLong(at)) == (u64)-1 && PyErr_Occurred()) ||
                PyObject_GetBuffer(of, &views[i], 0) < 0;
        if (wrong)
            break;
        held++;
        wrong = put(job, i, to, (u64)views[i].buf, views[i].len) < 0;
    }
    if (!wrong)
        work_unlocked(job);
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    PyMem_Free(views);
    if (wrong)
        return NULL;
    return Py_NewRef(Py_None);
}

/* Makes the pieces of rows, with room for a sum and a count of each. */
static PyObject *with_rows(PyObject *given, PyObject *(*call)(Job *, PyObject *), int summed)
{
    PyObject *out = NULL, *rows = PySequence_Tuple(given);
    if (rows == NULL)
        return NULL;
    size_t n = PyTuple_Size(rows);
    u64 *all = PyMem_Calloc(n + 1, 8 * (3 + 1 + 1));
    if (all == NULL) {
        PyErr_NoMemory();
    } else {
        Job job = {.pieces = (byte *)all, .counts = (byte *)(all + 3 * n), .width = 3, .until = INFINITY};
        job.n_pieces = n;
        job.n_counts = summed ? n : 0;
        job.sums = all + 4 * n;
        for (size_t i = 0; i < n; i++)
            all[3 * n + i] = 1;
        out = call(&job, rows);
    }
    PyMem_Free(all);
    Py_DECREF(rows);
    return out;
}

static PyObject *bulk_read(PyObject *self, PyObject *rows) { return with_rows(rows, read_rows, 1); }

static PyObject *bulk_write(PyObject *self, PyObject *rows) { return with_rows(rows, write_rows, 0); }

/* ---- the module ------------------------------------------------------------- */

enum { NAMED = METH_VARARGS | METH_KEYWORDS };

static PyMethodDef methods[] = {
    {"copy", (PyCFunction)(void (*)(void))bulk_copy, NAMED, "copy(pieces, counts=b'', until=inf): see kvstored.bulk"},
    {"sums", (PyCFunction)(void (*)(void))bulk_sums, NAMED, "sums(pieces, counts): see kvstored.bulk"},
    {"address", (PyCFunction)(void (*)(void))bulk_address, NAMED, "address(buffer, writable=False): see kvstored.bulk"},
    {"read", bulk_read, METH_O, "read(rows): see kvstored.bulk"},
    {"write", bulk_write, METH_O, "write(rows): see kvstored.bulk"},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module)
{
#if defined(__x86_64__) && !defined(WITHOUT_VECTORS)
    if (__builtin_cpu_supports("avx2"))
        take = take_avx2;
#endif
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, begin}, {0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_bulk", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__bulk(void) { return PyModuleDef_Init(&module); }
