/*
 * conformance SOCKET SCRIPT: runs a script of testdata/conformance with the C
 * client, and says which lines went wrong. conformance_test.go builds and runs
 * it. A null or wrong argument ends it, since scripts are the repository's own.
 */
#define _POSIX_C_SOURCE 200809L

#include "../kvstored.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_NAMED = 64, MAX_WORDS = 8, MAX_SIZES = 64, MAX_TOKENS = 4096, LINE = 4096 };

struct space {
  char name[32];
  kvs_space_info info;
};

struct prompt {
  char name[32];
  kvs_prompt p;
  uint32_t tokens[MAX_TOKENS];
  uint8_t hashes[MAX_SIZES * 16];
};

static kvs_client *client;
static struct space spaces[MAX_NAMED];
static struct prompt prompts[MAX_NAMED];
static size_t n_spaces, n_prompts;
static char out[LINE]; /* what the step answers */
static int code;       /* of the call that was refused */

static void die(const char *what) {
  fprintf(stderr, "conformance: %s\n", what);
  exit(2);
}

static void say(const char *format, ...) {
  size_t n = strlen(out);
  va_list args;
  va_start(args, format);
  vsnprintf(out + n, sizeof out - n, format, args);
  va_end(args);
}

static struct space *space_of(const char *name) {
  for (size_t i = 0; i < n_spaces; i++) {
    if (strcmp(spaces[i].name, name) == 0) return &spaces[i];
  }
  die("no such space");
  return NULL;
}

static struct prompt *prompt_of(const char *name) {
  for (size_t i = 0; i < n_prompts; i++) {
    if (strcmp(prompts[i].name, name) == 0) return &prompts[i];
  }
  die("no such prompt");
  return NULL;
}

static struct prompt *new_prompt(const char *name) {
  if (n_prompts == MAX_NAMED || strlen(name) >= sizeof prompts[0].name) die("too many prompts, or too long a name");
  struct prompt *p = &prompts[n_prompts++];
  strcpy(p->name, name);
  return p;
}

static uint32_t number(const char *s) {
  char *end;
  unsigned long n = strtoul(s, &end, 10);
  if (*s == 0 || *end != 0 || n > UINT32_MAX) die("no number");
  return (uint32_t)n;
}

static size_t numbers(const char *s, uint32_t *sizes) {
  size_t n = 0;
  if (strcmp(s, "-") == 0) return 0;
  for (;;) {
    char *end;
    if (n == MAX_SIZES) die("too many sizes");
    sizes[n++] = (uint32_t)strtoul(s, &end, 10);
    if (*end == 0) return n;
    if (*end != ',') die("no list of numbers");
    s = end + 1;
  }
}

/* Byte k of the payload of chunk i of a prompt. */
static uint8_t payload_byte(const struct prompt *p, uint32_t i, uint32_t k) {
  uint32_t chunk = p->p.alone ? 0 : i + p->p.skip;
  return (uint8_t)((31u * chunk + 7u * k) % 251u);
}

static void write_payload(const struct prompt *p, uint32_t i, uint8_t *to, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) to[k] = payload_byte(p, i, k);
}

static int same_payload(const struct prompt *p, uint32_t i, const uint8_t *got, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) {
    if (got[k] != payload_byte(p, i, k)) return 0;
  }
  return 1;
}

/* ---- steps: 1 done, 0 refused with code ---- */

static int ok(int result) {
  code = result;
  return result == KVS_OK;
}

static int step_space(char **a) {
  struct space *s = &spaces[n_spaces];
  kvs_space want;
  memset(&want, 0, sizeof want);
  want.model = "conformance";
  want.dtype = "u8";
  want.method = a[1];
  want.chunk_tokens = number(a[2]);
  if (n_spaces == MAX_NAMED || strlen(a[0]) >= sizeof s->name) die("too many spaces, or too long a name");
  if (!ok(kvs_open_space(client, &want, &s->info))) return 0;
  strcpy(s->name, a[0]);
  n_spaces++;
  return 1;
}

static int step_tokens(char **a) {
  struct prompt *p = new_prompt(a[0]);
  uint32_t first = number(a[2]), n = number(a[3]);
  if (n > MAX_TOKENS) die("too many tokens");
  for (uint32_t i = 0; i < n; i++) p->tokens[i] = first + i;
  p->p.space = space_of(a[1])->info.handle;
  p->p.tokens = p->tokens;
  p->p.n_tokens = n;
  return 1;
}

static int hashes(char **a, uint32_t first, uint32_t n, int alone) {
  struct prompt *p = new_prompt(a[0]);
  if (n > MAX_SIZES) die("too many hashes");
  for (uint32_t i = 0; i < n; i++) {
    p->hashes[16 * i] = (uint8_t)number(a[2]);
    p->hashes[16 * i + 1] = (uint8_t)(first + i + 1);
  }
  p->p.space = space_of(a[1])->info.handle;
  p->p.hashes = p->hashes;
  p->p.n_hashes = n;
  p->p.hash_bytes = 16;
  p->p.save_unfull = 1;
  p->p.alone = alone;
  return 1;
}

static int step_hashes(char **a) { return hashes(a, 0, number(a[3]), 0); }
static int step_alone(char **a) { return hashes(a, number(a[3]), number(a[4]), 1); }

static int step_skip(char **a) {
  const struct prompt *q = prompt_of(a[1]);
  struct prompt *p = new_prompt(a[0]);
  p->p = q->p; /* its arrays are those of q */
  p->p.skip = number(a[2]);
  return 1;
}

static int step_kept(char **a) {
  const struct prompt *q = prompt_of(a[1]);
  struct prompt *p = new_prompt(a[0]);
  kvs_match match;
  p->p = q->p;
  p->p.keep = (uint64_t)n_prompts;
  if (!ok(kvs_lookup(client, &p->p, 0, &match))) return 0;
  memset(&p->p, 0, sizeof p->p);
  p->p.kept = (uint64_t)n_prompts;
  p->p.skip = q->p.skip;
  return 1;
}

static void say_grants(const kvs_fill *fill) {
  uint32_t n = kvs_fill_slots(fill, NULL, NULL);
  for (uint32_t i = 0; i < n; i++) {
    kvs_slot s;
    if (kvs_slot_of(fill, i, &s) != KVS_OK) die("a slot is not there");
    say("%s%s", i > 0 ? "," : "", kvs_name(s.code));
  }
  if (n == 0) say("-");
}

static void say_results(const kvs_result *r, size_t n) {
  for (size_t i = 0; i < n; i++) {
    say("%s%s", i > 0 ? "," : "", kvs_name(r[i].code));
  }
  if (n == 0) say("-");
}

static uint32_t max_age; /* of the next reservation, in seconds */

static int reserve(const struct prompt *p, char **a, kvs_fill **fill) {
  uint32_t sizes[MAX_SIZES];
  kvs_wish wish;
  memset(&wish, 0, sizeof wish);
  wish.first = number(a[1]);
  wish.n_sizes = numbers(a[2], sizes);
  wish.count = (uint32_t)wish.n_sizes;
  wish.sizes = sizes;
  wish.max_age_s = max_age;
  return ok(kvs_reserve(client, &p->p, &wish, fill));
}

static int step_store(char **a) {
  const struct prompt *p = prompt_of(a[0]);
  kvs_fill *fill;
  kvs_result results[MAX_SIZES];
  if (!reserve(p, a, &fill)) return 0;
  uint32_t n = kvs_fill_slots(fill, NULL, NULL);
  for (uint32_t i = 0; i < n; i++) {
    kvs_slot s;
    if (kvs_slot_of(fill, i, &s) == KVS_OK && s.code == KVS_OK) {
      write_payload(p, number(a[1]) + i, s.memory, s.bytes);
    }
  }
  say_grants(fill);
  int done = ok(kvs_commit(fill, 0, 0, results));
  say(" ");
  if (done) say_results(results, n);
  kvs_fill_free(fill);
  return done;
}

static int step_aged(char **a) {
  max_age = number(a[3]);
  int done = step_store(a);
  max_age = 0;
  return done;
}

static int step_over(char **a) {
  kvs_match m;
  struct timespec pause = {0, 20000000};
  for (int left = 500; left > 0; left--) {
    if (!ok(kvs_lookup(client, &prompt_of(a[0])->p, 0, &m))) return 0;
    if (m.total.chunks == 0) return 1;
    nanosleep(&pause, NULL);
  }
  say("%u chunks are still found", (unsigned)m.total.chunks);
  return 1;
}

static int step_abandon(char **a) {
  kvs_fill *fill;
  if (!reserve(prompt_of(a[0]), a, &fill)) return 0;
  say_grants(fill);
  int done = ok(kvs_abort(fill, 0, 0));
  kvs_fill_free(fill);
  return done;
}

static int step_put(char **a) {
  const struct prompt *p = prompt_of(a[0]);
  uint32_t sizes[MAX_SIZES], first = number(a[1]);
  size_t n = numbers(a[2], sizes);
  void *payloads[MAX_SIZES];
  kvs_result results[MAX_SIZES];
  for (size_t i = 0; i < n; i++) {
    payloads[i] = malloc(sizes[i] + 1u);
    if (payloads[i] == NULL) die("no memory");
    write_payload(p, first + (uint32_t)i, payloads[i], sizes[i]);
  }
  int done = ok(kvs_put(client, &p->p, first, (const void *const *)payloads, sizes, n, results));
  for (size_t i = 0; i < n; i++) free(payloads[i]);
  if (done) say_results(results, n);
  return done;
}

static int step_lookup(char **a) {
  kvs_match m;
  if (!ok(kvs_lookup(client, &prompt_of(a[0])->p, 0, &m))) return 0;
  say("%u %llu", (unsigned)m.total.chunks, (unsigned long long)m.total.tokens);
  return 1;
}

static int step_why(char **a) {
  const struct prompt *p = prompt_of(a[0]);
  kvs_match m;
  kvs_missing looked, loaded;
  kvs_load how;
  kvs_job *job;
  memset(&how, 0, sizeof how);
  how.missing = &loaded;
  if (!ok(kvs_lookup_why(client, &p->p, 0, &m, &looked))) return 0;
  if (!ok(kvs_prefetch(client, &p->p, &how, &job, NULL))) return 0;
  say("%s", kvs_name(looked.code));
  if (loaded.code != looked.code || loaded.tier != looked.tier) say(", a prefetch is told %s", kvs_name(loaded.code));
  if ((looked.ago_s == UINT32_MAX) != (looked.tier == 0)) say(", but when it left is told of tier %u", looked.tier);
  return ok(kvs_release(job));
}

/* Prefetches all of a prompt. */
static int load(const struct prompt *p, kvs_job **job) {
  if (!ok(kvs_prefetch(client, &p->p, NULL, job, NULL))) return 0;
  return ok(kvs_wait(*job, UINT64_MAX, 10000));
}

static int step_read(char **a) {
  const struct prompt *p = prompt_of(a[0]);
  uint32_t sizes[MAX_SIZES], first = number(a[1]);
  size_t n = numbers(a[2], sizes);
  kvs_job *job;
  kvs_state s;
  if (!load(p, &job)) return 0;
  if (kvs_state_of(job, &s) != KVS_OK || s.refs != first + n || s.ready.chunks != s.refs) {
    say("%u chunks, ", (unsigned)s.refs);
  }
  for (uint32_t i = 0; i < n; i++) {
    kvs_chunk c;
    if (kvs_chunk_of(job, first + i, &c) != KVS_OK || c.bytes != sizes[i] ||
        !same_payload(p, first + i, c.memory, c.bytes)) {
      say("other bytes in chunk %u, ", (unsigned)(first + i));
    }
  }
  int held = kvs_release(job);
  say("%s", kvs_name(held));
  return 1;
}

static int step_get(char **a) {
  const struct prompt *p = prompt_of(a[0]);
  uint32_t sizes[MAX_SIZES], first = number(a[1]);
  size_t n = numbers(a[2], sizes);
  kvs_got *got;
  if (!ok(kvs_get(client, &p->p, first, 0, 0, 10000, &got))) return 0;
  if (kvs_got_chunks(got) != n) say("%u chunks, ", (unsigned)kvs_got_chunks(got));
  for (uint32_t i = 0; i < n; i++) {
    kvs_chunk c;
    if (kvs_got_chunk(got, i, &c) != KVS_OK || c.bytes != sizes[i] || !same_payload(p, first + i, c.memory, c.bytes)) {
      say("other bytes in chunk %u, ", (unsigned)(first + i));
    }
  }
  kvs_got_free(got);
  return 1;
}

static int step_sum(char **a) {
  kvs_job *job;
  kvs_chunk c;
  if (!load(prompt_of(a[0]), &job)) return 0;
  if (kvs_chunk_of(job, number(a[1]), &c) != KVS_OK) die("no such chunk");
  say("%016llx", (unsigned long long)c.sum);
  return ok(kvs_release(job));
}

static int step_pin(char **a) {
  kvs_count n;
  if (!ok(kvs_pin(client, &prompt_of(a[0])->p, a[1], 0, &n))) return 0;
  say("%u %llu", (unsigned)n.chunks, (unsigned long long)n.tokens);
  return 1;
}

static int step_unpin(char **a) {
  uint64_t n;
  if (!ok(kvs_unpin(client, a[0], &n))) return 0;
  say("%llu", (unsigned long long)n);
  return 1;
}

static int step_delete(char **a) {
  uint64_t n;
  if (!ok(kvs_delete(client, &prompt_of(a[0])->p, 10000, &n))) return 0;
  say("%llu", (unsigned long long)n);
  return 1;
}

static int step_flush(char **a) {
  (void)a;
  return ok(kvs_flush(client, 0, 10000, NULL, NULL));
}

static int step_ping(char **a) {
  (void)a;
  return ok(kvs_ping(client));
}

static const struct {
  const char *name;
  int words; /* arguments */
  int (*run)(char **);
} steps[] = {
    {"space", 3, step_space},   {"tokens", 4, step_tokens},   {"hashes", 4, step_hashes}, {"alone", 5, step_alone},
    {"skip", 3, step_skip},     {"kept", 2, step_kept},       {"store", 3, step_store},     {"abandon", 3, step_abandon},
    {"put", 3, step_put},       {"aged", 4, step_aged},       {"over", 1, step_over},
    {"why", 1, step_why},       {"lookup", 1, step_lookup}, {"read", 3, step_read},       {"get", 3, step_get},       {"sum", 2, step_sum},
    {"pin", 2, step_pin},       {"unpin", 1, step_unpin},     {"delete", 1, step_delete}, {"flush", 0, step_flush},
    {"ping", 0, step_ping}};

static const char *const retries[] = {"never", "release", "later", "reconnect"};

static int run(char **words, int n) {
  if (n > 0 && strcmp(words[0], "refused") == 0) {
    if (run(words + 1, n - 1)) {
      say(" was not refused");
    } else {
      out[0] = 0;
      say("%s %s", kvs_name(code), retries[kvs_error_of(client)->retry & 3]);
    }
    return 1;
  }
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    if (n > 0 && strcmp(words[0], steps[i].name) == 0) {
      if (n - 1 != steps[i].words) die("a step has too few or too many words");
      return steps[i].run(words + 1);
    }
  }
  die("no such step");
  return 0;
}

static char *trim(char *s) {
  while (*s == ' ' || *s == '\t') s++;
  size_t n = strlen(s);
  while (n > 0 && strchr(" \t\r\n", s[n - 1]) != NULL) s[--n] = 0;
  return s;
}

/* One line of the script: 1 if it went as it must. */
static int line_ok(char *line, int number_of_line) {
  char *words[MAX_WORDS], *want = "", *comment = strchr(line, '#');
  int n = 0;
  if (comment != NULL) *comment = 0;
  char *equals = strstr(line, " = ");
  if (equals != NULL) {
    *equals = 0;
    want = trim(equals + 3);
  }
  for (char *w = strtok(trim(line), " "); w != NULL && n < MAX_WORDS; w = strtok(NULL, " ")) words[n++] = w;
  if (n == 0) return 1;
  out[0] = 0;
  int done = run(words, n);
  if (done && strcmp(trim(out), want) == 0) return 1;
  printf("line %d: %s: got \"%s\", want \"%s\"", number_of_line, words[0], trim(out), want);
  if (!done) printf("; %s: %s", kvs_name(code), kvs_error_of(client)->text);
  printf("\n");
  return 0;
}

int main(int argc, char **argv) {
  kvs_options options;
  kvs_error error;
  char line[LINE];
  int bad = 0;
  if (argc != 3) die("usage: conformance SOCKET SCRIPT");
  memset(&options, 0, sizeof options);
  options.socket = argv[1];
  options.name = "conformance";
  options.wants = KVS_ARENA | KVS_STAGING;
  if (kvs_connect(&options, &client, &error) != KVS_OK) die(error.text);
  FILE *script = fopen(argv[2], "r");
  if (script == NULL) die("there is no such script");
  for (int n = 1; fgets(line, sizeof line, script) != NULL; n++) bad += !line_ok(line, n);
  fclose(script);
  kvs_close(client);
  return bad > 0;
}
