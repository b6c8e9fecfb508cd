/*
 * kvstored.c: see kvstored.h. In order: bytes out (struct out), bytes in (struct
 * in), the socket, hello and the mappings, and the calls.
 *
 * A message is read with a sticky flag: reading beyond the end gives zeros and
 * sets in.bad, which the caller looks at once, at the end. Nothing is allocated
 * for a claimed count: the body holds the bytes first.
 */
#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC, memfd descriptors */
#include "kvstored.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---- numbers of the protocol: testdata/wire/schema.json ---- */

enum { KIND_REQUEST = 0, KIND_REPLY = 1, KIND_PUSH = 2 };
enum {
  OP_HELLO = 1, OP_OPEN_SPACE = 2, OP_LOOKUP = 3, OP_PREFETCH = 4, OP_WAIT = 5, OP_CANCEL = 6, OP_RESERVE = 7,
  OP_COMMIT = 8, OP_ABORT = 9, OP_PUT = 10, OP_GET = 11, OP_RELEASE = 12, OP_RENEW = 13, OP_PIN = 14, OP_UNPIN = 15,
  OP_DELETE = 16, OP_FLUSH = 17, OP_STATS = 18, OP_PING = 19, OP_WARM = 20, OP_BATCH = 21
};
enum { FORM_TOKENS = 0, FORM_HASHES = 1, FORM_REF = 2, FORM_KEPT = 3, FORM_NONE = 4 };
enum { CHAIN_SAVE_UNFULL = 1, CHAIN_ALONE = 2 };
enum { OPTION_DEADLINE = 1, OPTION_WHY = 13, OPTION_MAX_AGE = 0x800b, OPTION_HELLO_SPACE = 0x8002, OPTION_CRITICAL = 0x8000, ERROR_LIMIT = 1 };
enum { HEADER = 16, MAX_BODY = 75497472, MAX_TAGS = 32, MAX_CHUNKS = 1048576, MAX_DESCRIPTORS = 8 };

#define DEFAULT_TIMEOUT_MS 10000u
#define NO_PUSHED 0xffffffffu

/* ---- bytes out ---- */

/* A buffer that grows. Once memory is short, failed stays set and appends do
 * nothing. */
struct out {
  uint8_t *p;
  size_t n, room;
  int failed;
};

static void out_free(struct out *o) {
  free(o->p);
  memset(o, 0, sizeof *o);
}

/* Room for n more bytes, which are 0; null where there is none. */
static uint8_t *out_grow(struct out *o, size_t n) {
  if (o->failed || n > SIZE_MAX / 2 - o->n) {
    o->failed = 1;
    return NULL;
  }
  if (o->n + n > o->room) {
    size_t room = (o->n + n) * 2;
    uint8_t *p = realloc(o->p, room);
    if (p == NULL) {
      o->failed = 1;
      return NULL;
    }
    o->p = p;
    o->room = room;
  }
  uint8_t *at = o->p + o->n;
  if (n > 0) memset(at, 0, n);
  o->n += n;
  return at;
}

static void store_le(uint8_t *p, uint64_t v, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static void out_le(struct out *o, uint64_t v, size_t n) {
  uint8_t *p = out_grow(o, n);
  if (p != NULL) store_le(p, v, n);
}

static void out_u8(struct out *o, unsigned v) { out_le(o, v, 1); }
static void out_u16(struct out *o, unsigned v) { out_le(o, v, 2); }
static void out_u32(struct out *o, uint32_t v) { out_le(o, v, 4); }
static void out_u64(struct out *o, uint64_t v) { out_le(o, v, 8); }
static void out_zero(struct out *o, size_t n) { (void)out_grow(o, n); }
static void out_pad(struct out *o) { out_zero(o, (8 - o->n % 8) % 8); }

static void out_bytes(struct out *o, const void *p, size_t n) {
  uint8_t *at = out_grow(o, n);
  if (at != NULL && n > 0) memcpy(at, p, n);
}

static void out_str(struct out *o, const char *s) {
  size_t n = s == NULL ? 0 : strlen(s);
  out_u32(o, (uint32_t)n);
  out_bytes(o, s, n);
  out_pad(o);
}

/* The head of an array of n elements of so many bytes. */
static void out_array(struct out *o, size_t n, size_t element) {
  out_u32(o, (uint32_t)n);
  out_u16(o, (unsigned)element);
  out_u16(o, 0);
}

static void out_u32s(struct out *o, const uint32_t *v, size_t n) {
  out_array(o, n, 4);
  uint8_t *p = out_grow(o, 4 * n);
  for (size_t i = 0; p != NULL && i < n; i++) store_le(p + 4 * i, v[i], 4);
  out_pad(o);
}

/* Begins a record, whose length out_end writes. */
static size_t out_begin(struct out *o) {
  out_u64(o, 0);
  return o->n;
}

static void out_end(struct out *o, size_t begin) {
  if (o->failed) return;
  store_le(o->p + begin - 8, o->n - begin, 4);
  out_pad(o);
}

static void out_options(struct out *o, uint32_t n) {
  out_u32(o, n);
  out_u32(o, 0);
}

/* The options of a request that may have a deadline; 0 is none. */
static void out_option(struct out *o, uint16_t tag, uint32_t value) {
  if (value == 0) return;
  out_u16(o, tag);
  out_u16(o, 0);
  out_u32(o, 4);
  out_u32(o, value);
  out_pad(o);
}

static void out_deadline(struct out *o, uint32_t ms) {
  out_options(o, ms != 0);
  out_option(o, OPTION_DEADLINE, ms);
}

static void out_why(struct out *o, int why) {
  out_options(o, why != 0);
  out_option(o, OPTION_WHY, why != 0);
}

/* ---- bytes in ---- */

struct in {
  const uint8_t *p;
  size_t n, at;
  int bad;
};

static struct in in_of(const uint8_t *p, size_t n) {
  struct in i = {p, n, 0, 0};
  return i;
}

static const uint8_t *in_take(struct in *i, size_t n) {
  if (i->bad || n > i->n - i->at) {
    i->bad = 1;
    return NULL;
  }
  const uint8_t *p = i->p + i->at;
  i->at += n;
  return p;
}

static uint64_t load_le(const uint8_t *p, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}

static uint64_t in_le(struct in *i, size_t n) {
  const uint8_t *p = in_take(i, n);
  return p == NULL ? 0 : load_le(p, n);
}

static unsigned in_u8(struct in *i) { return (unsigned)in_le(i, 1); }
static unsigned in_u16(struct in *i) { return (unsigned)in_le(i, 2); }
static uint32_t in_u32(struct in *i) { return (uint32_t)in_le(i, 4); }
static uint64_t in_u64(struct in *i) { return in_le(i, 8); }
static void in_skip(struct in *i, size_t n) { (void)in_take(i, n); }

/* n bytes and the padding behind them. */
static const uint8_t *in_padded(struct in *i, size_t n) {
  const uint8_t *p = in_take(i, n);
  in_skip(i, (8 - i->at % 8) % 8);
  return i->bad ? NULL : p;
}

static struct in in_sub(struct in *i, size_t n) {
  const uint8_t *p = in_padded(i, n);
  return p == NULL ? in_of(NULL, 0) : in_of(p, n);
}

/* A text: its bytes, not ended by 0. */
static struct in in_text(struct in *i) { return in_sub(i, in_u32(i)); }

/* A record of at least the bytes that are known; what is behind them is passed
 * over. */
static struct in in_record(struct in *i) {
  uint32_t n = in_u32(i);
  in_skip(i, 4);
  return in_sub(i, n);
}

static uint32_t in_list(struct in *i) {
  uint32_t n = in_u32(i);
  in_skip(i, 4);
  return n;
}

/* An array: elements of `bytes` each, of which the first known are read. */
struct array {
  const uint8_t *p;
  size_t n, bytes;
};

static struct array in_array(struct in *i, size_t known) {
  struct array a = {NULL, 0, 0};
  size_t n = in_u32(i), bytes = in_u16(i);
  in_skip(i, 2);
  if (n > 0 && bytes < known) i->bad = 1;
  if (i->bad || (bytes > 0 && n > (i->n - i->at) / bytes)) {
    i->bad = 1;
    return a;
  }
  a.p = in_padded(i, n * bytes);
  if (a.p != NULL && n > 0) {
    a.n = n;
    a.bytes = bytes;
  }
  return a;
}

/* An array of numbers, which never grow. */
static struct array in_numbers(struct in *i, size_t size) {
  struct array a = in_array(i, size);
  if (a.n > 0 && a.bytes != size) i->bad = 1;
  return a;
}

static struct in at(const struct array *a, size_t k) { return in_of(a->p + k * a->bytes, a->bytes); }

/* Calls known for each option; it says whether it knows the tag, and may set
 * value->bad. Tags ascend. An option that must be understood and is not makes
 * the message bad. */
typedef int (*known_option)(void *to, unsigned tag, struct in *value);

static void in_options(struct in *i, known_option known, void *to) {
  uint32_t n = in_list(i);
  long last = -1;
  for (uint32_t k = 0; k < n && !i->bad; k++) {
    unsigned tag = in_u16(i);
    in_skip(i, 2);
    uint32_t bytes = in_u32(i);
    struct in value = in_sub(i, bytes);
    if (i->bad) return;
    if ((long)tag <= last) i->bad = 1;
    last = (long)tag;
    if (known == NULL || !known(to, tag, &value)) {
      if (tag & OPTION_CRITICAL) i->bad = 1;
    } else if (value.bad) {
      i->bad = 1;
    }
  }
}

static kvs_count in_count(struct in *i) {
  kvs_count c;
  c.tokens = in_u64(i);
  c.chunks = in_u32(i);
  in_skip(i, 4);
  return c;
}

static void in_tiers(struct in *i, kvs_count tiers[3]) {
  struct array a = in_array(i, 16);
  for (size_t k = 0; k < 3 && k < a.n; k++) {
    struct in e = at(&a, k);
    tiers[k] = in_count(&e);
  }
}

/* ---- what replies mean ---- */

/* A place in the arena. */
struct ref {
  uint64_t offset, sum;
  uint32_t bytes, tokens;
};

struct state {
  int code, failed_tier;
  uint32_t first;
  kvs_count ready;
  struct array refs;
};

static struct ref ref_of(const struct array *a, size_t k) {
  struct in e = at(a, k);
  struct ref r;
  r.offset = in_u64(&e);
  r.sum = in_u64(&e);
  r.bytes = in_u32(&e);
  r.tokens = in_u32(&e);
  return r;
}

/* What a reply says of why a chunk is missing, and of the groups of a hybrid model.
 * This client does not ask for these; it reads what others may be told, and keeps
 * nothing of it. */
enum { GROUPS_OPTION = 5, LENGTHS_OPTION = 6, MISSING_OPTION = 7, NEED_BYTES = 24 };

static int state_option(void *to, unsigned tag, struct in *value) {
  (void)to;
  if (tag != GROUPS_OPTION) return 0;
  in_array(value, NEED_BYTES);
  return 1;
}

/* to is a kvs_missing. */
static int match_option(void *to, unsigned tag, struct in *value) {
  kvs_missing *missing = to;
  if (tag == LENGTHS_OPTION) return (void)in_numbers(value, 4), 1;
  if (tag == MISSING_OPTION) {
    missing->code = (int)in_u16(value);
    missing->tier = in_u8(value);
    in_skip(value, 1);
    missing->ago_s = in_u32(value);
    return 1;
  }
  if (tag != GROUPS_OPTION) return 0;
  in_skip(value, 24); /* usable, run, lacks */
  in_array(value, NEED_BYTES);
  return 1;
}

static void in_state(struct in *i, struct state *s) {
  kvs_count tiers[3];
  s->code = (int)in_u16(i);
  s->failed_tier = (int)in_u8(i);
  in_skip(i, 1);
  s->first = in_u32(i);
  s->ready = in_count(i);
  in_tiers(i, tiers);
  s->refs = in_array(i, 24);
  in_options(i, state_option, NULL);
}

static void in_match(struct in *i, kvs_match *m) {
  memset(m, 0, sizeof *m);
  m->total = in_count(i);
  in_tiers(i, m->tiers);
}

static const kvs_missing nothing_missing = {KVS_OK, 0, UINT32_MAX};

struct prefetched {
  uint64_t job;
  kvs_match match;
  kvs_missing missing;
  struct state state;
};

static void in_faults(struct in *i) {
  for (uint32_t n = in_list(i); n > 0 && !i->bad; n--) {
    struct in fault = in_record(i);
    in_skip(&fault, 8);   /* code, action */
    (void)in_text(&fault); /* name */
    (void)in_text(&fault); /* text */
    if (fault.bad) i->bad = 1;
  }
}

/* to is a kvs_missing. */
static int prefetched_option(void *to, unsigned tag, struct in *value) {
  if (tag == 1) { /* advice */
    in_skip(value, 24);
  } else if (tag == 2) { /* what did not count of the request configs */
    in_faults(value);
  } else {
    return match_option(to, tag, value);
  }
  return 1;
}

static void in_prefetched(struct in *i, struct prefetched *p) {
  p->job = in_u64(i);
  in_match(i, &p->match);
  p->match.worth = in_u32(i);
  in_skip(i, 4);
  struct in s = in_record(i);
  in_state(&s, &p->state);
  if (s.bad) i->bad = 1;
  p->missing = nothing_missing;
  in_options(i, prefetched_option, &p->missing);
}

static void in_space_info(struct in *i, kvs_space_info *info) {
  info->handle = in_u32(i);
  info->chunk_tokens = in_u32(i);
  const uint8_t *id = in_take(i, 16);
  if (id != NULL) memcpy(info->id, id, 16);
}

struct greeting {
  unsigned version;
  kvs_info info;
  uint32_t descriptors;
  struct in server;
};

static int hello_option(void *to, unsigned tag, struct in *value) {
  kvs_space_info info;
  (void)to;
  switch (tag) {
  case 2: in_space_info(value, &info); return 1;
  case 3: in_u64(value); return 1; /* directory_bytes, which was not asked for */
  }
  return 0;
}

static void in_hello(struct in *i, struct greeting *g) {
  memset(g, 0, sizeof *g);
  g->version = in_u16(i);
  g->info.rights = in_u8(i);
  g->info.put_mode = in_u8(i);
  g->info.granted = in_u32(i);
  g->info.epoch = in_u64(i);
  g->info.connection = in_u64(i);
  g->info.arena_bytes = in_u64(i);
  g->info.staging_bytes = in_u64(i);
  g->descriptors = in_u32(i);
  g->info.max_payload = in_u32(i);
  g->info.max_request = in_u32(i);
  g->info.max_reply = in_u32(i);
  in_u64(i); /* credit: one request is under way at a time */
  struct in limits = in_record(i);
  g->info.lease_ms = in_u32(&limits);
  in_u32(&limits); /* pin_ms */
  g->info.prefetch_ms = in_u32(&limits);
  in_skip(&limits, 4 * 15); /* the other 15, from prefetch_us_per_1024 on */
  if (limits.bad) i->bad = 1;
  g->server = in_text(i);
  in_options(i, hello_option, NULL);
}

struct refusal {
  int retry;
  uint32_t after_ms;
  uint64_t limit;
  struct in text;
};

static int error_option(void *to, unsigned tag, struct in *value) {
  if (tag != ERROR_LIMIT) return 0;
  ((struct refusal *)to)->limit = in_u64(value);
  return 1;
}

static void in_refusal(struct in *i, struct refusal *r) {
  memset(r, 0, sizeof *r);
  r->retry = (int)in_u8(i);
  in_skip(i, 3);
  r->after_ms = in_u32(i);
  r->text = in_text(i);
  in_options(i, error_option, r);
}

static int reserve_option(void *to, unsigned tag, struct in *value) {
  (void)to;
  if (tag != 1) return 0; /* differ */
  (void)in_numbers(value, 4);
  return 1;
}

struct slots {
  uint64_t fill;
  int code;
  struct array slots;
};

static void in_reserve(struct in *i, struct slots *s) {
  s->fill = in_u64(i);
  s->code = (int)in_u16(i);
  in_skip(i, 6);
  s->slots = in_array(i, 16);
  in_options(i, reserve_option, NULL);
}

static struct array in_results(struct in *i) {
  struct array a = in_array(i, 16);
  in_options(i, NULL, NULL);
  return a;
}

/* The chunks of a get; *payloads is where their bytes begin. */
static struct array in_get(struct in *i, const uint8_t **payloads) {
  struct array a = in_array(i, 16);
  in_options(i, NULL, NULL);
  uint64_t sum = 0;
  for (size_t k = 0; k < a.n; k++) sum += load_le(a.p + k * a.bytes, 4);
  if (!i->bad && sum > i->n - i->at) i->bad = 1;
  *payloads = i->bad ? NULL : in_padded(i, (size_t)sum);
  return a;
}

static void in_flush(struct in *i, uint64_t *chunks, uint64_t *bytes) {
  *chunks = in_u64(i);
  *bytes = in_u64(i);
  uint32_t n = in_list(i);
  for (uint32_t k = 0; k < n && !i->bad; k++) {
    struct in left = in_record(i);
    in_skip(&left, 16);
    (void)in_text(&left);
    if (left.bad) i->bad = 1;
  }
  in_options(i, NULL, NULL);
}

/* ---- the client ---- */

struct kvs_client {
  int fd; /* -1 when the connection has ended */
  uint32_t timeout_ms;
  uint64_t last_id;
  kvs_info info;
  kvs_error error;
  char text[1024];   /* of error */
  char server[1025]; /* of info */
  struct out request;
  uint8_t *body; /* of the frame that was read last */
  size_t body_room;
  kvs_job *jobs; /* live */
  kvs_fill *fills;
};

struct kvs_job {
  kvs_client *client; /* null when that was closed */
  kvs_job *next;
  kvs_state state;
  struct ref *refs;
  size_t room;
};

struct kvs_fill {
  kvs_client *client;
  kvs_fill *next;
  uint64_t id;
  int code;
  uint32_t n;
  kvs_slot *slots;
};

struct kvs_got {
  uint8_t *body;
  struct array chunks;
  const uint8_t *payloads;
  size_t *offsets; /* of each chunk, from payloads on */
};

static const char *const names[] = {
    "ok", "bad_request", "unknown_op", "version", "denied", "too_large", "no_space", "over_budget", "not_found",
    "unknown_space", "unknown_job", "unknown_fill", "revoked", "not_reserved", "inconsistent_chain", "closed",
    "tier_off", "timeout", "internal", "unknown_option", "unsupported", "over_quota", "starting", "cancelled",
    "unknown_chain", "running", "pending", "exists", "differs", "corrupt", "failed", "gap", "never_stored", "evicted",
    "declined", "other_space", "group"};

const char *kvs_name(int code) {
  switch (code) {
  case KVS_EARGUMENT: return "argument";
  case KVS_EMEMORY: return "memory";
  case KVS_ECONNECT: return "connect";
  case KVS_ELOST: return "lost";
  case KVS_ETIMEOUT: return "no_answer";
  case KVS_EPROTOCOL: return "protocol";
  }
  if (code < 0 || (size_t)code >= sizeof names / sizeof *names) return "unknown";
  return names[code];
}

const kvs_info *kvs_info_of(const kvs_client *client) { return client == NULL ? NULL : &client->info; }

const kvs_error *kvs_error_of(const kvs_client *client) {
  static const kvs_error none = {KVS_EARGUMENT, KVS_RETRY_NEVER, 0, 0, "the client is null"};
  return client == NULL ? &none : &client->error;
}

/* Notes a fault of this side; text is the whole story. */
static int fault(kvs_client *c, int code, const char *text) {
  c->error.code = code;
  c->error.retry = code == KVS_ELOST || code == KVS_ETIMEOUT ? KVS_RETRY_RECONNECT : KVS_RETRY_NEVER;
  c->error.after_ms = 0;
  c->error.limit = 0;
  snprintf(c->text, sizeof c->text, "%s", text);
  c->error.text = c->text;
  return code;
}

static int argument(kvs_client *c, const char *text) { return fault(c, KVS_EARGUMENT, text); }
static int short_of_memory(kvs_client *c) { return fault(c, KVS_EMEMORY, "there is no memory for the request"); }

/* Ends the connection; mappings stay until kvs_close. */
static int lose(kvs_client *c, int code, const char *text) {
  if (c->fd >= 0) {
    close(c->fd);
    c->fd = -1;
  }
  return fault(c, code, text);
}

static int senseless(kvs_client *c) {
  return lose(c, KVS_EPROTOCOL, "the daemon sent what makes no sense; the connection is closed, connect again");
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until the socket can be read or written, or until: 0, KVS_ETIMEOUT. */
static int ready(int fd, short events, int64_t until) {
  for (;;) {
    int64_t left = until - now_ms();
    struct pollfd p = {fd, events, 0};
    int n = poll(&p, 1, left < 0 ? 0 : left > 60000 ? 60000 : (int)left);
    if (n > 0) return KVS_OK;
    if (n < 0 && errno != EINTR) return KVS_ELOST;
    if (n == 0 && now_ms() >= until) return KVS_ETIMEOUT;
  }
}

static int lose_late(kvs_client *c, int code) {
  if (code == KVS_ETIMEOUT) {
    return lose(c, code, "the daemon did not answer in time; the connection is closed, connect again");
  }
  return lose(c, code, "the connection to the daemon has ended; connect again");
}

/* Reads n bytes; *fds, if not null, takes descriptors that come with the first. */
struct descriptors {
  int fd[MAX_DESCRIPTORS];
  size_t n;
};

static void take_descriptors(struct msghdr *m, struct descriptors *d) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t k = 0; k < n; k++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + k * sizeof fd, sizeof fd);
      if (d->n < MAX_DESCRIPTORS) {
        d->fd[d->n++] = fd;
      } else {
        close(fd);
      }
    }
  }
}

static int receive(kvs_client *c, void *to, size_t n, int64_t until, struct descriptors *d) {
  uint8_t *p = to;
  while (n > 0) {
    union {
      char bytes[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
      struct cmsghdr align;
    } control;
    struct iovec v = {p, n};
    struct msghdr m;
    memset(&m, 0, sizeof m);
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    if (d != NULL) {
      m.msg_control = control.bytes;
      m.msg_controllen = sizeof control.bytes;
    }
    ssize_t got = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      if (d != NULL) take_descriptors(&m, d);
      p += got;
      n -= (size_t)got;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      int code = ready(c->fd, POLLIN, until);
      if (code != KVS_OK) return lose_late(c, code);
    } else if (got == 0 || errno != EINTR) {
      return lose_late(c, KVS_ELOST);
    }
  }
  return KVS_OK;
}

/* Sends what v has, all of it. */
static int transmit(kvs_client *c, struct iovec *v, size_t n, int64_t until) {
  while (n > 0) {
    struct msghdr m;
    memset(&m, 0, sizeof m);
    m.msg_iov = v;
    m.msg_iovlen = n > 64 ? 64 : n;
    ssize_t sent = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      int code = ready(c->fd, POLLOUT, until);
      if (code != KVS_OK) return lose_late(c, code);
      continue;
    }
    /* A daemon that refuses closes its end; its answer may be there to read. */
    if (sent < 0) return errno == EPIPE ? KVS_OK : lose_late(c, KVS_ELOST);
    size_t left = (size_t)sent;
    while (n > 0 && left >= v->iov_len) {
      left -= v->iov_len;
      v++;
      n--;
    }
    if (n > 0) {
      v->iov_base = (uint8_t *)v->iov_base + left;
      v->iov_len -= left;
    }
  }
  return KVS_OK;
}

struct frame {
  uint32_t bytes;
  unsigned kind, op, code;
  uint64_t id;
};

static struct frame frame_of(const uint8_t h[HEADER]) {
  struct frame f;
  f.bytes = (uint32_t)load_le(h, 4);
  f.kind = h[4];
  f.op = h[5];
  f.code = (unsigned)load_le(h + 6, 2);
  f.id = load_le(h + 8, 8);
  return f;
}

/* Reads one frame; its body is c->body. Only the refusal of a hello may have a
 * body that is no multiple of 8: that of another version. */
static int read_frame(kvs_client *c, struct frame *f, int64_t until, struct descriptors *d) {
  uint8_t header[HEADER];
  int code = receive(c, header, sizeof header, until, d);
  if (code != KVS_OK) return code;
  *f = frame_of(header);
  int other_version = f->op == OP_HELLO && f->code == KVS_VERSION;
  uint32_t most = c->info.max_reply != 0 ? c->info.max_reply : MAX_BODY;
  if (f->bytes > most || (f->bytes % 8 != 0 && !other_version)) return senseless(c);
  if (f->bytes > c->body_room) {
    uint8_t *p = realloc(c->body, f->bytes);
    if (p == NULL) return lose(c, KVS_EMEMORY, "there is no memory for a reply; the connection is closed");
    c->body = p;
    c->body_room = f->bytes;
  }
  return receive(c, c->body, f->bytes, until, d);
}

/* Whether a place that the daemon named lies in a mapping. */
static int inside(uint64_t offset, uint32_t bytes, uint64_t mapped) {
  return offset <= mapped && bytes <= mapped - offset;
}

/* Puts refs where they belong: those of chunk s->first and following. Refs that
 * are known already come with the same content. */
static int job_take(kvs_client *c, kvs_job *j, const struct state *s) {
  if (s->refs.n > 0 && s->first > j->state.refs) return senseless(c); /* a hole */
  size_t end = (size_t)s->first + s->refs.n;
  if (s->refs.n > 0 && end > MAX_CHUNKS) return senseless(c);
  if (s->refs.n > 0 && end > j->room) {
    size_t room = end * 2;
    struct ref *refs = realloc(j->refs, room * sizeof *refs);
    if (refs == NULL) return lose(c, KVS_EMEMORY, "there is no memory for the chunks of a job; the connection is closed");
    j->refs = refs;
    j->room = room;
  }
  for (size_t k = 0; k < s->refs.n; k++) {
    struct ref r = ref_of(&s->refs, k);
    if (c->info.arena != NULL && !inside(r.offset, r.bytes, c->info.arena_bytes)) return senseless(c);
    j->refs[s->first + k] = r;
  }
  if (s->refs.n > 0 && end > j->state.refs) j->state.refs = (uint32_t)end;
  j->state.code = s->code;
  j->state.failed_tier = s->failed_tier;
  if (s->ready.chunks >= j->state.ready.chunks) j->state.ready = s->ready;
  return KVS_OK;
}

/* A push: of a job or fill that is known, or passed over. */
static int take_push(kvs_client *c, const struct frame *f) {
  struct in i = in_of(c->body, f->bytes);
  if (f->op == OP_PREFETCH) {
    struct state s;
    in_state(&i, &s);
    if (i.bad) return senseless(c);
    for (kvs_job *j = c->jobs; j != NULL; j = j->next) {
      if (j->state.id == f->id) return job_take(c, j, &s);
    }
  } else if (f->op == OP_RESERVE) {
    unsigned code = in_u16(&i);
    in_skip(&i, 6);
    in_options(&i, NULL, NULL);
    if (i.bad) return senseless(c);
    for (kvs_fill *l = c->fills; l != NULL; l = l->next) {
      if (l->id == f->id) l->code = (int)code;
    }
  }
  return KVS_OK;
}

/* What a daemon of another version answers: a length of 2 bytes, and text. */
static int other_version(kvs_client *c, const struct frame *f) {
  struct in i = in_of(c->body, f->bytes);
  unsigned n = in_u16(&i);
  const uint8_t *p = in_take(&i, n);
  if (i.bad) return senseless(c);
  char text[512];
  snprintf(text, sizeof text, "%.*s", n > 500 ? 500 : (int)n, (const char *)p);
  return lose(c, KVS_VERSION, text);
}

/* What a refused request returns. */
static int refused(kvs_client *c, const struct frame *f) {
  if (f->code == KVS_VERSION) return other_version(c, f);
  struct in i = in_of(c->body, f->bytes);
  struct refusal r;
  in_refusal(&i, &r);
  if (i.bad) return senseless(c);
  c->error.code = (int)f->code;
  c->error.retry = r.retry;
  c->error.after_ms = r.after_ms;
  c->error.limit = r.limit;
  snprintf(c->text, sizeof c->text, "%.*s", r.text.n > 1000 ? 1000 : (int)r.text.n, (const char *)r.text.p);
  c->error.text = c->text;
  return (int)f->code;
}

/* Begins a request: its header, which call completes. */
static struct out *begin(kvs_client *c) {
  c->request.n = 0;
  c->request.failed = 0;
  out_zero(&c->request, HEADER);
  return &c->request;
}

/* Sends the request that c->request has, with payloads behind it, and reads its
 * reply; deadline_ms is what it may wait besides. On 0 *in is the reply's body. */
static int call_with(kvs_client *c, unsigned op, uint32_t deadline_ms, struct iovec *payloads, size_t n, size_t bytes,
                     struct in *in, struct descriptors *d) {
  static const uint8_t zeros[8];
  if (c->fd < 0) return fault(c, KVS_ELOST, "the connection has ended before; connect again");
  struct out *o = &c->request;
  if (o->failed) return short_of_memory(c);
  size_t pad = (8 - bytes % 8) % 8;
  size_t body = o->n - HEADER + bytes + pad;
  uint32_t most = c->info.max_request != 0 ? c->info.max_request : MAX_BODY;
  if (body > most) {
    fault(c, KVS_TOO_LARGE, "the request is larger than the daemon takes at a time; send less");
    c->error.limit = most;
    return KVS_TOO_LARGE;
  }
  uint64_t id = ++c->last_id;
  store_le(o->p, body, 4);
  o->p[4] = KIND_REQUEST;
  o->p[5] = (uint8_t)op;
  store_le(o->p + 8, id, 8);
  payloads[0].iov_base = o->p;
  payloads[0].iov_len = o->n;
  payloads[n + 1].iov_base = (void *)(uintptr_t)zeros;
  payloads[n + 1].iov_len = pad;
  int64_t until = now_ms() + c->timeout_ms + deadline_ms;
  int code = transmit(c, payloads, n + 2, until);
  while (code == KVS_OK) {
    struct frame f;
    code = read_frame(c, &f, until, d);
    if (code != KVS_OK) return code;
    if (f.kind == KIND_PUSH) {
      code = take_push(c, &f);
    } else if (f.kind != KIND_REPLY || f.op != op || (f.id != id && !(op == OP_HELLO && f.id == 0))) { /* 0: refused before it was read */
      return senseless(c);
    } else if (f.code != KVS_OK) {
      return refused(c, &f);
    } else {
      *in = in_of(c->body, f.bytes);
      return KVS_OK;
    }
  }
  return code;
}

static int call(kvs_client *c, unsigned op, uint32_t deadline_ms, struct in *in) {
  struct iovec v[2];
  return call_with(c, op, deadline_ms, v, 0, 0, in, NULL);
}

/* A call whose reply has nothing but options. */
static int call_plain(kvs_client *c, unsigned op, uint32_t deadline_ms) {
  struct in i;
  int code = call(c, op, deadline_ms, &i);
  if (code != KVS_OK) return code;
  in_options(&i, NULL, NULL);
  return i.bad ? senseless(c) : KVS_OK;
}

/* ---- hello ---- */

static int fits(const char *s) { return s == NULL || strlen(s) <= KVS_MAX_STR; }

/* What one huge page maps. Memory that is mapped from elsewhere on is mapped page by
   page when it is first read, which takes as long as copying it. */
#define HUGE_BYTES ((size_t)2 << 20)

/* Address space for a mapping at a multiple of HUGE_BYTES; NULL: anywhere will do. What
   begins there is one mapping of so many bytes, to be replaced or unmapped. */
static void *room_for(size_t bytes) {
  char *room, *start;
  size_t head, page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes < HUGE_BYTES || bytes > SIZE_MAX - 2 * HUGE_BYTES) return NULL;
  bytes = (bytes + page - 1) / page * page;
  room = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return NULL;
  head = (HUGE_BYTES - (uintptr_t)room % HUGE_BYTES) % HUGE_BYTES;
  start = room + head;
  if (head > 0) munmap(room, head);
  if (head < HUGE_BYTES) munmap(start + bytes, HUGE_BYTES - head);
  return start;
}

/* Maps a descriptor of the daemon and closes it. */
static void *map(int fd, uint64_t bytes, int writable) {
  struct stat st;
  void *room, *p = MAP_FAILED;
  if (fstat(fd, &st) == 0 && (uint64_t)st.st_size >= bytes && bytes <= SIZE_MAX) {
    room = room_for((size_t)bytes);
    p = mmap(room, (size_t)bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | (room != NULL ? MAP_FIXED : 0), fd, 0);
    if (p == MAP_FAILED && room != NULL) munmap(room, (size_t)bytes);
  }
  return p == MAP_FAILED ? NULL : p;
}

/* Maps what came with hello; the descriptors are the arena, then the window. */
static int map_all(kvs_client *c, const struct descriptors *d) {
  size_t k = 0;
  kvs_info *info = &c->info;
  if (info->arena_bytes > 0) {
    if (k >= d->n || (info->arena = map(d->fd[k++], info->arena_bytes, info->put_mode == 2)) == NULL) {
      return lose(c, KVS_ECONNECT, "the memory of the daemon cannot be mapped");
    }
  }
  if (info->staging_bytes > 0) {
    if (k >= d->n || (info->staging = map(d->fd[k++], info->staging_bytes, 1)) == NULL) {
      return lose(c, KVS_ECONNECT, "the staging window cannot be mapped");
    }
    madvise(info->staging, (size_t)info->staging_bytes, MADV_HUGEPAGE); /* a kernel without them says so, and no more */
  }
  return KVS_OK;
}

static void put_space(struct out *o, const kvs_space *s) {
  out_u32(o, s->world == 0 ? 1 : s->world);
  out_u32(o, s->worker);
  out_u32(o, s->chunk_tokens);
  out_u32(o, 0);
  out_zero(o, 16); /* salt_digest */
  out_str(o, s->model);
  out_str(o, s->revision);
  out_str(o, s->lora);
  out_str(o, s->dtype);
  out_str(o, s->method);
  out_str(o, s->group);
  out_str(o, s->salt);
  out_u64(o, s->n_tags); /* a list: count, zero */
  for (size_t k = 0; k < s->n_tags; k++) {
    size_t at = out_begin(o);
    out_str(o, s->tags[k].name);
    out_str(o, s->tags[k].value);
    out_end(o, at);
  }
}

static int hello(kvs_client *c, const kvs_options *options) {
  struct out *o = begin(c);
  out_bytes(o, "KVS1", 4);
  out_u16(o, 2);
  out_u16(o, 2);
  out_u32(o, options->wants & ~32u); /* not directory: this client asks for each read */
  out_u32(o, 0); /* max_request, max_reply: as the daemon likes */
  out_u32(o, 0);
  out_u32(o, 0);
  out_u64(o, options->staging_bytes);
  out_u64(o, 0); /* credit */
  out_str(o, options->name);
  out_options(o, 0);

  struct iovec v[2];
  struct descriptors d = {{0}, 0};
  struct in i;
  struct greeting g;
  int code = call_with(c, OP_HELLO, 0, v, 0, 0, &i, &d);
  if (code == KVS_OK) {
    in_hello(&i, &g);
    if (i.bad || g.version != 2) {
      code = senseless(c);
    } else {
      c->info = g.info;
      snprintf(c->server, sizeof c->server, "%.*s", (int)g.server.n, (const char *)g.server.p);
      c->info.server = c->server;
      code = map_all(c, &d);
    }
  }
  for (size_t k = 0; k < d.n; k++) close(d.fd[k]);
  return code;
}

static int connect_to(kvs_client *c, const char *path) {
  struct sockaddr_un to;
  memset(&to, 0, sizeof to);
  to.sun_family = AF_UNIX;
  memcpy(to.sun_path, path, strlen(path));
  c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (c->fd < 0) return fault(c, KVS_ECONNECT, "no socket can be made: the process has too many files open");
  while (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0) {
    if (errno == EINTR) continue;
    char text[512];
    snprintf(text, sizeof text, "%s: %s: is the daemon running?", path, strerror(errno));
    return lose(c, KVS_ECONNECT, text);
  }
  return KVS_OK;
}

static void tell(kvs_error *error, int code, const char *text) {
  if (error == NULL) return;
  memset(error, 0, sizeof *error);
  error->code = code;
  error->text = text;
}

/* A text that outlives the client that is about to be freed. */
static const char *lasting(int code) {
  switch (code) {
  case KVS_ECONNECT: return "there is no daemon at that socket, or its memory cannot be mapped";
  case KVS_VERSION: return "the daemon speaks another version of the protocol: update the older side";
  case KVS_STARTING: return "the daemon is starting: try again after after_ms";
  case KVS_DENIED: return "this user may not use the daemon: see listen.allow_uids and access";
  case KVS_OVER_BUDGET: return "the daemon takes no further connection of this user now";
  case KVS_ETIMEOUT: return "the daemon did not answer in time";
  case KVS_EMEMORY: return "there is no memory for a client";
  default: return "the daemon refused the connection: see code";
  }
}

/* One attempt: *client is to be closed whatever is returned, if it is not null. */
static int attempt(const kvs_options *options, kvs_client **client) {
  kvs_client *c = *client = calloc(1, sizeof *c);
  if (c == NULL) return KVS_EMEMORY;
  c->fd = -1;
  c->error.text = "";
  c->timeout_ms = options->timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : options->timeout_ms;
  int code = connect_to(c, options->socket);
  return code == KVS_OK ? hello(c, options) : code;
}

static void pause_ms(int64_t ms) {
  struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

int kvs_connect(const kvs_options *options, kvs_client **client, kvs_error *error) {
  tell(error, KVS_OK, "");
  if (client != NULL) *client = NULL;
  if (client == NULL || options == NULL || options->socket == NULL || !fits(options->name)) {
    tell(error, KVS_EARGUMENT, "options, their socket and client must not be null, and a name has at most 1,024 bytes");
    return KVS_EARGUMENT;
  }
  if (strlen(options->socket) >= sizeof ((struct sockaddr_un *)0)->sun_path) {
    tell(error, KVS_EARGUMENT, "the path of the socket is longer than a Unix socket can have");
    return KVS_EARGUMENT;
  }
  int64_t until = now_ms() + (options->timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : options->timeout_ms);
  kvs_client *c;
  int code;
  while ((code = attempt(options, &c)) == KVS_STARTING) {
    int64_t after = c->error.after_ms < 10 ? 10 : c->error.after_ms > 1000 ? 1000 : c->error.after_ms;
    if (now_ms() + after >= until) break;
    kvs_close(c);
    pause_ms(after);
  }
  if (code != KVS_OK) {
    tell(error, code, lasting(code));
    if (error != NULL && c != NULL) {
      error->retry = c->error.retry;
      error->after_ms = c->error.after_ms;
      error->limit = c->error.limit;
    }
    kvs_close(c);
    return code;
  }
  *client = c;
  return KVS_OK;
}

void kvs_close(kvs_client *c) {
  if (c == NULL) return;
  for (kvs_job *j = c->jobs; j != NULL; j = j->next) j->client = NULL;
  for (kvs_fill *f = c->fills; f != NULL; f = f->next) f->client = NULL;
  if (c->fd >= 0) close(c->fd);
  if (c->info.arena != NULL) munmap((void *)(uintptr_t)c->info.arena, (size_t)c->info.arena_bytes);
  if (c->info.staging != NULL) munmap(c->info.staging, (size_t)c->info.staging_bytes);
  out_free(&c->request);
  free(c->body);
  free(c);
}

/* ---- spaces and chains ---- */

int kvs_open_space(kvs_client *c, const kvs_space *s, kvs_space_info *info) {
  if (c == NULL) return KVS_EARGUMENT;
  if (s == NULL || info == NULL) return argument(c, "space and info must not be null");
  if (s->n_tags > MAX_TAGS || (s->n_tags > 0 && s->tags == NULL)) return argument(c, "a space has at most 32 tags");
  if (!fits(s->model) || !fits(s->revision) || !fits(s->lora) || !fits(s->dtype) || !fits(s->method) ||
      !fits(s->group) || !fits(s->salt)) {
    return argument(c, "a text of a space has at most 1,024 bytes");
  }
  for (size_t k = 0; k < s->n_tags; k++) {
    if (s->tags[k].name == NULL || !fits(s->tags[k].name) || !fits(s->tags[k].value)) {
      return argument(c, "a tag has a name, and at most 1,024 bytes in name and value");
    }
  }
  struct out *o = begin(c);
  size_t at = out_begin(o);
  put_space(o, s);
  out_end(o, at);
  out_options(o, 0);
  struct in i;
  int code = call(c, OP_OPEN_SPACE, 0, &i);
  if (code != KVS_OK) return code;
  kvs_space_info got;
  memset(&got, 0, sizeof got);
  in_space_info(&i, &got);
  in_options(&i, NULL, NULL);
  if (i.bad) return senseless(c);
  *info = got;
  return KVS_OK;
}

/* The form of a prompt, or -1 where it has two. */
static int form_of(const kvs_prompt *p) {
  int forms = (p->tokens != NULL) + (p->hashes != NULL) + (p->ref != 0) + (p->kept != 0);
  if (forms > 1) return -1;
  if (p->tokens != NULL) return FORM_TOKENS;
  if (p->hashes != NULL) return FORM_HASHES;
  if (p->ref != 0) return FORM_REF;
  if (p->kept != 0) return FORM_KEPT;
  return FORM_NONE;
}

static int check_prompt(kvs_client *c, const kvs_prompt *p, int may_be_space) {
  if (p == NULL) return argument(c, "the prompt must not be null");
  int form = form_of(p);
  if (form < 0) return argument(c, "a prompt has one of tokens, hashes, ref and kept");
  if (form == FORM_NONE && !may_be_space) return argument(c, "a prompt has tokens, hashes, ref or kept");
  if (form == FORM_TOKENS && (p->n_tokens > MAX_BODY / 4)) return argument(c, "a prompt of more tokens than a request can have");
  if (form == FORM_HASHES) {
    if (p->hash_bytes != 8 && p->hash_bytes != 16 && p->hash_bytes != 32) return argument(c, "a hash has 8, 16 or 32 bytes");
    if (p->n_hashes > MAX_CHUNKS) return argument(c, "a chain has at most 1,048,576 chunks");
  }
  if (form >= FORM_REF && (p->keep != 0 || p->alone)) return argument(c, "keep and alone are of prompts that are sent");
  if (form != FORM_HASHES && p->alone) return argument(c, "alone is of hashes");
  return KVS_OK;
}

static void put_prompt(struct out *o, const kvs_prompt *p) {
  int form = form_of(p);
  size_t at = out_begin(o);
  out_u32(o, form == FORM_REF || form == FORM_KEPT ? 0 : p->space);
  out_u8(o, (unsigned)form);
  out_u8(o, form >= FORM_REF ? 0 : (p->save_unfull ? CHAIN_SAVE_UNFULL : 0) | (p->alone ? CHAIN_ALONE : 0));
  out_u16(o, 0);
  out_u32(o, p->skip);
  out_u32(o, form == FORM_HASHES ? p->last_tokens : 0);
  out_u64(o, form == FORM_REF ? p->ref : form == FORM_KEPT ? p->kept : p->keep);
  if (form == FORM_TOKENS) {
    out_u32s(o, p->tokens, p->n_tokens);
  } else if (form == FORM_HASHES) {
    out_array(o, p->n_hashes, p->hash_bytes);
    out_bytes(o, p->hashes, p->n_hashes * p->hash_bytes);
    out_pad(o);
  } else {
    out_array(o, 0, 0);
  }
  out_end(o, at);
}

/* ---- reading ---- */

int kvs_lookup(kvs_client *c, const kvs_prompt *prompt, unsigned search, kvs_match *match) {
  return kvs_lookup_why(c, prompt, search, match, NULL);
}

int kvs_lookup_why(kvs_client *c, const kvs_prompt *prompt, unsigned search, kvs_match *match, kvs_missing *missing) {
  if (c == NULL) return KVS_EARGUMENT;
  if (match == NULL || search > 7) return argument(c, "match must not be null, and search is of KVS_CPU, KVS_DISK, KVS_REMOTE");
  int code = check_prompt(c, prompt, 0);
  if (code != KVS_OK) return code;
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_u64(o, search); /* u8, 7 of 0 */
  out_why(o, missing != NULL);
  struct in i;
  code = call(c, OP_LOOKUP, 0, &i);
  if (code != KVS_OK) return code;
  kvs_match m;
  kvs_missing lacks = nothing_missing;
  in_match(&i, &m);
  m.worth = in_u32(&i);
  in_skip(&i, 4);
  in_options(&i, match_option, &lacks);
  if (i.bad) return senseless(c);
  *match = m;
  if (missing != NULL) *missing = lacks;
  return KVS_OK;
}

int kvs_prefetch(kvs_client *c, const kvs_prompt *prompt, const kvs_load *load, kvs_job **job, kvs_match *match) {
  static const kvs_load plain;
  if (job != NULL) *job = NULL;
  if (c == NULL) return KVS_EARGUMENT;
  if (job == NULL) return argument(c, "job must not be null");
  if (load == NULL) load = &plain;
  if (load->search > 7 || load->flags > 3 || load->policy > 3 || !fits(load->lookup_id)) {
    return argument(c, "search, flags or policy of the load is unknown, or its lookup_id longer than 1,024 bytes");
  }
  int code = check_prompt(c, prompt, 0);
  if (code != KVS_OK) return code;
  kvs_job *j = calloc(1, sizeof *j);
  if (j == NULL) return short_of_memory(c);
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_u8(o, load->search);
  out_u8(o, load->flags);
  out_u8(o, load->policy);
  out_u8(o, 0);
  out_u32(o, load->load_ms);
  out_str(o, load->lookup_id);
  out_why(o, load->missing != NULL);
  struct in i;
  struct prefetched p;
  code = call(c, OP_PREFETCH, 0, &i);
  if (code == KVS_OK) {
    in_prefetched(&i, &p);
    j->state.id = p.job;
    code = i.bad ? senseless(c) : job_take(c, j, &p.state);
  }
  if (code != KVS_OK) {
    free(j->refs);
    free(j);
    return code;
  }
  j->client = c;
  j->next = c->jobs;
  c->jobs = j;
  *job = j;
  if (match != NULL) *match = p.match;
  if (load->missing != NULL) *load->missing = p.missing;
  return KVS_OK;
}

int kvs_state_of(const kvs_job *job, kvs_state *state) {
  if (job == NULL || state == NULL) return KVS_EARGUMENT;
  *state = job->state;
  return KVS_OK;
}

int kvs_chunk_of(const kvs_job *job, uint32_t k, kvs_chunk *chunk) {
  if (job == NULL || chunk == NULL || k >= job->state.refs) return KVS_EARGUMENT;
  const struct ref *r = &job->refs[k];
  const uint8_t *arena = job->client == NULL ? NULL : job->client->info.arena;
  chunk->memory = arena == NULL ? NULL : arena + r->offset;
  chunk->sum = r->sum;
  chunk->bytes = r->bytes;
  chunk->tokens = r->tokens;
  return KVS_OK;
}

int kvs_wait(kvs_job *job, uint64_t min_tokens, uint32_t deadline_ms) {
  if (job == NULL || job->client == NULL) return KVS_EARGUMENT;
  kvs_client *c = job->client;
  struct out *o = begin(c);
  out_u64(o, job->state.id);
  out_u64(o, min_tokens);
  out_u32(o, job->state.refs);
  out_u32(o, 0);
  /* Without the option it would wait for ever; 0 ms is an answer at once. */
  out_options(o, 1);
  out_u16(o, OPTION_DEADLINE);
  out_u16(o, 0);
  out_u32(o, 4);
  out_u32(o, deadline_ms);
  out_pad(o);
  struct in i;
  struct state s;
  int code = call(c, OP_WAIT, deadline_ms, &i);
  if (code != KVS_OK) return code;
  in_state(&i, &s);
  return i.bad ? senseless(c) : job_take(c, job, &s);
}

int kvs_release(kvs_job *job) {
  if (job == NULL) return KVS_EARGUMENT;
  kvs_client *c = job->client;
  int code = KVS_ELOST;
  if (c != NULL) {
    for (kvs_job **at = &c->jobs; *at != NULL; at = &(*at)->next) {
      if (*at == job) {
        *at = job->next;
        break;
      }
    }
    struct out *o = begin(c);
    out_u64(o, job->state.id);
    out_options(o, 0);
    struct in i;
    code = call(c, OP_RELEASE, 0, &i);
    if (code == KVS_OK) {
      struct state s;
      int held = (int)in_u16(&i);
      in_skip(&i, 6);
      struct in state = in_record(&i);
      in_state(&state, &s);
      in_options(&i, NULL, NULL);
      code = i.bad || state.bad ? senseless(c) : held;
      if (code == KVS_REVOKED) fault(c, code, "the lease was too old: forget what was read under it");
    }
  }
  free(job->refs);
  free(job);
  return code;
}

int kvs_renew(kvs_client *c, uint64_t id, uint32_t *holds_ms) {
  if (c == NULL) return KVS_EARGUMENT;
  struct out *o = begin(c);
  out_u64(o, id);
  out_options(o, 0);
  struct in i;
  int code = call(c, OP_RENEW, 0, &i);
  if (code != KVS_OK) return code;
  uint32_t ms = in_u32(&i);
  in_skip(&i, 4);
  in_options(&i, NULL, NULL);
  if (i.bad) return senseless(c);
  if (holds_ms != NULL) *holds_ms = ms;
  return KVS_OK;
}

int kvs_get(kvs_client *c, const kvs_prompt *prompt, uint32_t first, uint32_t max_chunks, uint32_t max_bytes,
            uint32_t deadline_ms, kvs_got **got) {
  if (got != NULL) *got = NULL;
  if (c == NULL) return KVS_EARGUMENT;
  if (got == NULL) return argument(c, "got must not be null");
  int code = check_prompt(c, prompt, 0);
  if (code != KVS_OK) return code;
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_u32(o, first);
  out_u32(o, max_chunks);
  out_u32(o, max_bytes);
  out_u32(o, 0);
  out_deadline(o, deadline_ms);
  struct in i;
  code = call(c, OP_GET, deadline_ms != 0 ? deadline_ms : c->info.prefetch_ms, &i);
  if (code != KVS_OK) return code;
  kvs_got g;
  memset(&g, 0, sizeof g);
  g.chunks = in_get(&i, &g.payloads);
  if (i.bad) return senseless(c);
  kvs_got *to = calloc(1, sizeof *to);
  size_t *offsets = calloc(g.chunks.n + 1, sizeof *offsets);
  if (to == NULL || offsets == NULL) {
    free(to);
    free(offsets);
    return short_of_memory(c);
  }
  for (size_t k = 0; k < g.chunks.n; k++) {
    offsets[k + 1] = offsets[k] + (size_t)load_le(g.chunks.p + k * g.chunks.bytes, 4);
  }
  *to = g;
  to->offsets = offsets;
  to->body = c->body; /* the client reads its next frame into new memory */
  c->body = NULL;
  c->body_room = 0;
  *got = to;
  return KVS_OK;
}

uint32_t kvs_got_chunks(const kvs_got *got) { return got == NULL ? 0 : (uint32_t)got->chunks.n; }

int kvs_got_chunk(const kvs_got *got, uint32_t k, kvs_chunk *chunk) {
  if (got == NULL || chunk == NULL || k >= got->chunks.n) return KVS_EARGUMENT;
  struct in e = at(&got->chunks, k);
  chunk->bytes = in_u32(&e);
  chunk->tokens = in_u32(&e);
  chunk->sum = in_u64(&e);
  chunk->memory = got->payloads + got->offsets[k];
  return KVS_OK;
}

void kvs_got_free(kvs_got *got) {
  if (got == NULL) return;
  free(got->body);
  free(got->offsets);
  free(got);
}

/* ---- storing ---- */

/* Slots of a reply as the caller sees them, or null: no memory, or senseless. */
static kvs_slot *slots_of(kvs_client *c, const struct slots *s) {
  int direct = c->info.put_mode == 2;
  uint8_t *base = direct ? (uint8_t *)(uintptr_t)c->info.arena : c->info.staging;
  uint64_t mapped = direct ? c->info.arena_bytes : c->info.staging_bytes;
  kvs_slot *slots = calloc(s->slots.n + 1, sizeof *slots);
  if (slots == NULL) {
    lose(c, KVS_EMEMORY, "there is no memory for the slots of a fill; the connection is closed");
    return NULL;
  }
  for (size_t k = 0; k < s->slots.n; k++) {
    struct in e = at(&s->slots, k);
    slots[k].code = (int)in_u16(&e);
    in_skip(&e, 2);
    slots[k].bytes = in_u32(&e);
    uint64_t offset = in_u64(&e);
    if (slots[k].code != KVS_OK) continue;
    if (base == NULL || !inside(offset, slots[k].bytes, mapped)) {
      free(slots);
      senseless(c);
      return NULL;
    }
    slots[k].memory = base + offset;
  }
  return slots;
}

int kvs_reserve(kvs_client *c, const kvs_prompt *prompt, const kvs_wish *wish, kvs_fill **fill) {
  if (fill != NULL) *fill = NULL;
  if (c == NULL) return KVS_EARGUMENT;
  if (fill == NULL || wish == NULL || wish->sizes == NULL || wish->n_sizes == 0 || wish->n_sizes > MAX_CHUNKS) {
    return argument(c, "fill, wish and its sizes must not be null, and there is at least one size");
  }
  if (wish->flags > 7) return argument(c, "a flag of the wish is unknown");
  int code = check_prompt(c, prompt, 1);
  if (code != KVS_OK) return code;
  kvs_fill *f = calloc(1, sizeof *f);
  if (f == NULL) return short_of_memory(c);
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_u32(o, wish->first);
  out_u32(o, wish->count);
  out_u64(o, wish->flags); /* u8, 7 of 0 */
  out_u32s(o, wish->sizes, wish->n_sizes);
  out_options(o, (wish->deadline_ms != 0) + (wish->max_age_s != 0));
  out_option(o, OPTION_DEADLINE, wish->deadline_ms);
  out_option(o, OPTION_MAX_AGE, wish->max_age_s);
  struct in i;
  struct slots s;
  code = call(c, OP_RESERVE, wish->deadline_ms, &i);
  if (code == KVS_OK) {
    in_reserve(&i, &s);
    if (i.bad) {
      code = senseless(c);
    } else if ((f->slots = slots_of(c, &s)) == NULL) {
      code = c->error.code;
    }
  }
  if (code != KVS_OK) {
    free(f);
    return code;
  }
  f->id = s.fill;
  f->code = s.code;
  f->n = (uint32_t)s.slots.n;
  f->client = c;
  f->next = c->fills;
  c->fills = f;
  *fill = f;
  return KVS_OK;
}

uint32_t kvs_fill_slots(const kvs_fill *fill, uint64_t *id, int *code) {
  if (fill == NULL) return 0;
  if (id != NULL) *id = fill->id;
  if (code != NULL) *code = fill->code;
  return fill->n;
}

int kvs_slot_of(const kvs_fill *fill, uint32_t k, kvs_slot *slot) {
  if (fill == NULL || slot == NULL || k >= fill->n) return KVS_EARGUMENT;
  *slot = fill->slots[k];
  if (fill->client == NULL) slot->memory = NULL;
  return KVS_OK;
}

/* The range that first and count name, as the end; -1 where it is none. */
static int64_t range_end(const kvs_fill *f, uint32_t first, uint32_t count) {
  if (first > f->n || count > f->n - first) return -1;
  return count == 0 ? f->n : (int64_t)first + count;
}

static void take_results(const struct array *a, kvs_result *results, size_t n) {
  for (size_t k = 0; k < n; k++) {
    struct in e = at(a, k);
    results[k].code = (int)in_u16(&e);
    in_skip(&e, 6);
    results[k].sum = in_u64(&e);
  }
}

/* Slots that are over are no longer the caller's to write. */
static void end_slots(kvs_fill *f, uint32_t first, int64_t end) {
  for (int64_t k = first; k < end; k++) {
    if (f->slots[k].code == KVS_OK) f->slots[k].code = KVS_NOT_RESERVED;
    f->slots[k].memory = NULL;
  }
}

int kvs_commit(kvs_fill *f, uint32_t first, uint32_t count, kvs_result *results) {
  if (f == NULL || f->client == NULL) return KVS_EARGUMENT;
  kvs_client *c = f->client;
  int64_t end = range_end(f, first, count);
  if (end < 0) return argument(c, "the fill does not have these slots");
  size_t n = (size_t)(end - first);
  if (f->id == 0 || n == 0) { /* nothing was granted: there is no fill to name */
    for (size_t k = 0; results != NULL && k < n; k++) {
      results[k].code = KVS_NOT_RESERVED;
      results[k].sum = 0;
    }
    return KVS_OK;
  }
  struct out *o = begin(c);
  out_u64(o, f->id);
  out_u32(o, first);
  out_u32(o, (uint32_t)n);
  out_options(o, 0);
  struct in i;
  int code = call(c, OP_COMMIT, 0, &i);
  if (code == KVS_OK || code == KVS_REVOKED || code == KVS_UNKNOWN_FILL) end_slots(f, first, end);
  if (code != KVS_OK) return code;
  struct array a = in_results(&i);
  if (i.bad || a.n != n) return senseless(c);
  if (results != NULL) take_results(&a, results, n);
  return KVS_OK;
}

int kvs_abort(kvs_fill *f, uint32_t first, uint32_t count) {
  if (f == NULL || f->client == NULL) return KVS_EARGUMENT;
  kvs_client *c = f->client;
  int64_t end = range_end(f, first, count);
  if (end < 0) return argument(c, "the fill does not have these slots");
  if (f->id == 0 || end == first) return KVS_OK;
  struct out *o = begin(c);
  out_u64(o, f->id);
  out_u32(o, first);
  out_u32(o, (uint32_t)(end - first));
  out_options(o, 0);
  int code = call_plain(c, OP_ABORT, 0);
  if (code == KVS_OK || code == KVS_REVOKED || code == KVS_UNKNOWN_FILL) end_slots(f, first, end);
  return code;
}

void kvs_fill_free(kvs_fill *f) {
  if (f == NULL) return;
  kvs_client *c = f->client;
  if (c != NULL) {
    int open = 0;
    for (uint32_t k = 0; k < f->n; k++) open |= f->slots[k].code == KVS_OK;
    if (open && c->fd >= 0) (void)kvs_abort(f, 0, 0);
    for (kvs_fill **at = &c->fills; *at != NULL; at = &(*at)->next) {
      if (*at == f) {
        *at = f->next;
        break;
      }
    }
  }
  free(f->slots);
  free(f);
}

int kvs_put(kvs_client *c, const kvs_prompt *prompt, uint32_t first, const void *const *payloads,
            const uint32_t *sizes, size_t n, kvs_result *results) {
  if (c == NULL) return KVS_EARGUMENT;
  if (payloads == NULL || sizes == NULL || n == 0 || n > MAX_CHUNKS) {
    return argument(c, "payloads and sizes must not be null, and there is at least one");
  }
  uint64_t bytes = 0;
  for (size_t k = 0; k < n; k++) {
    if (payloads[k] == NULL) return argument(c, "a payload must not be null");
    bytes += sizes[k];
  }
  if (bytes > MAX_BODY) {
    fault(c, KVS_TOO_LARGE, "the payloads are larger than one request can be; send fewer");
    c->error.limit = MAX_BODY;
    return KVS_TOO_LARGE;
  }
  int code = check_prompt(c, prompt, 0);
  if (code != KVS_OK) return code;
  struct iovec *v = calloc(n + 2, sizeof *v);
  if (v == NULL) return short_of_memory(c);
  for (size_t k = 0; k < n; k++) {
    v[k + 1].iov_base = (void *)(uintptr_t)payloads[k];
    v[k + 1].iov_len = sizes[k];
  }
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_u32(o, first);
  out_u32(o, (uint32_t)bytes);
  out_u32s(o, sizes, n);
  out_options(o, 0);
  struct in i;
  code = call_with(c, OP_PUT, 0, v, n, (size_t)bytes, &i, NULL);
  free(v);
  if (code != KVS_OK) return code;
  struct array a = in_results(&i);
  if (i.bad || a.n != n) return senseless(c);
  if (results != NULL) take_results(&a, results, n);
  return KVS_OK;
}

/* ---- the rest ---- */

int kvs_delete(kvs_client *c, const kvs_prompt *prompt, uint32_t deadline_ms, uint64_t *chunks) {
  if (c == NULL) return KVS_EARGUMENT;
  int code = check_prompt(c, prompt, 1);
  if (code != KVS_OK) return code;
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_deadline(o, deadline_ms);
  struct in i;
  code = call(c, OP_DELETE, deadline_ms, &i);
  if (code != KVS_OK) return code;
  uint64_t n = in_u64(&i);
  in_options(&i, NULL, NULL);
  if (i.bad) return senseless(c);
  if (chunks != NULL) *chunks = n;
  return KVS_OK;
}

int kvs_flush(kvs_client *c, int durable, uint32_t deadline_ms, uint64_t *chunks, uint64_t *bytes) {
  if (c == NULL) return KVS_EARGUMENT;
  struct out *o = begin(c);
  out_u64(o, durable != 0); /* u8, 7 of 0 */
  out_deadline(o, deadline_ms);
  struct in i;
  int code = call(c, OP_FLUSH, deadline_ms, &i);
  if (code != KVS_OK) return code;
  uint64_t n, b;
  in_flush(&i, &n, &b);
  if (i.bad) return senseless(c);
  if (chunks != NULL) *chunks = n;
  if (bytes != NULL) *bytes = b;
  return KVS_OK;
}

int kvs_pin(kvs_client *c, const kvs_prompt *prompt, const char *name, uint32_t max_age_ms, kvs_count *pinned) {
  if (c == NULL) return KVS_EARGUMENT;
  if (name == NULL || *name == 0 || !fits(name)) return argument(c, "a pin has a name of 1 to 1,024 bytes");
  int code = check_prompt(c, prompt, 0);
  if (code != KVS_OK) return code;
  struct out *o = begin(c);
  put_prompt(o, prompt);
  out_u32(o, max_age_ms);
  out_u32(o, 0);
  out_str(o, name);
  out_options(o, 0);
  struct in i;
  code = call(c, OP_PIN, 0, &i);
  if (code != KVS_OK) return code;
  kvs_count n = in_count(&i);
  in_options(&i, NULL, NULL);
  if (i.bad) return senseless(c);
  if (pinned != NULL) *pinned = n;
  return KVS_OK;
}

int kvs_unpin(kvs_client *c, const char *name, uint64_t *chunks) {
  if (c == NULL) return KVS_EARGUMENT;
  if (name == NULL || *name == 0 || !fits(name)) return argument(c, "a pin has a name of 1 to 1,024 bytes");
  struct out *o = begin(c);
  out_str(o, name);
  out_options(o, 0);
  struct in i;
  int code = call(c, OP_UNPIN, 0, &i);
  if (code != KVS_OK) return code;
  uint64_t n = in_u64(&i);
  in_options(&i, NULL, NULL);
  if (i.bad) return senseless(c);
  if (chunks != NULL) *chunks = n;
  return KVS_OK;
}

int kvs_ping(kvs_client *c) {
  if (c == NULL) return KVS_EARGUMENT;
  out_options(begin(c), 0);
  return call_plain(c, OP_PING, 0);
}

int kvs_poll(kvs_client *c, uint32_t wait_ms) {
  if (c == NULL) return KVS_EARGUMENT;
  if (c->fd < 0) return fault(c, KVS_ELOST, "the connection has ended before; connect again");
  int64_t until = now_ms() + wait_ms;
  int code = ready(c->fd, POLLIN, until);
  while (code == KVS_OK) { /* a frame that has begun is read whole */
    struct frame f;
    code = read_frame(c, &f, now_ms() + c->timeout_ms, NULL);
    if (code != KVS_OK) return code;
    if (f.kind != KIND_PUSH) return senseless(c);
    code = take_push(c, &f);
    if (code != KVS_OK) return code;
    code = ready(c->fd, POLLIN, now_ms());
  }
  return code == KVS_ETIMEOUT ? KVS_OK : lose_late(c, code);
}

int kvs_stats(kvs_client *c, char **json) {
  if (json != NULL) *json = NULL;
  if (c == NULL) return KVS_EARGUMENT;
  if (json == NULL) return argument(c, "json must not be null");
  out_options(begin(c), 0);
  struct in i;
  int code = call(c, OP_STATS, 0, &i);
  if (code != KVS_OK) return code;
  struct in text = in_text(&i);
  in_options(&i, NULL, NULL);
  if (i.bad) return senseless(c);
  char *s = malloc(text.n + 1);
  if (s == NULL) return short_of_memory(c);
  if (text.n > 0) memcpy(s, text.p, text.n);
  s[text.n] = 0;
  *json = s;
  return KVS_OK;
}
