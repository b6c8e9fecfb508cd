/*
 * arguments SOCKET: calls everything with what makes no sense, with and without
 * a connection, and fails where a code is another than it must be. The
 * sanitizers find the rest.
 */
#include "../kvstored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void want(const char *what, int got, int code) {
  if (got != code) {
    printf("%s: %d (%s), want %d (%s)\n", what, got, kvs_name(got), code, kvs_name(code));
    failures++;
  }
}

#define WANT(call, code) want(#call, call, code)

static char long_text[2000];

/* Memory that is mapped elsewhere is not mapped by huge pages. */
static void lies(const kvs_info *info) {
  const size_t huge = (size_t)2 << 20;
  if (info->arena_bytes < huge) want("an arena of 2 MiB at least", 0, 1);
  want("the arena's place in a huge page", (int)((uintptr_t)info->arena % huge), 0);
}

/* No client at all. */
static void null_client(void) {
  kvs_space_info info;
  kvs_match match;
  kvs_job *job;
  kvs_fill *fill;
  kvs_got *got;
  char *json;
  uint64_t n;
  WANT(kvs_connect(NULL, NULL, NULL), KVS_EARGUMENT);
  WANT(kvs_open_space(NULL, NULL, &info), KVS_EARGUMENT);
  WANT(kvs_lookup(NULL, NULL, 0, &match), KVS_EARGUMENT);
  WANT(kvs_prefetch(NULL, NULL, NULL, &job, NULL), KVS_EARGUMENT);
  WANT(kvs_state_of(NULL, NULL), KVS_EARGUMENT);
  WANT(kvs_wait(NULL, 0, 0), KVS_EARGUMENT);
  WANT(kvs_chunk_of(NULL, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_release(NULL), KVS_EARGUMENT);
  WANT(kvs_renew(NULL, 1, NULL), KVS_EARGUMENT);
  WANT(kvs_get(NULL, NULL, 0, 0, 0, 0, &got), KVS_EARGUMENT);
  WANT((int)kvs_got_chunks(NULL), 0);
  WANT(kvs_got_chunk(NULL, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_reserve(NULL, NULL, NULL, &fill), KVS_EARGUMENT);
  WANT((int)kvs_fill_slots(NULL, NULL, NULL), 0);
  WANT(kvs_slot_of(NULL, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_commit(NULL, 0, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_abort(NULL, 0, 0), KVS_EARGUMENT);
  WANT(kvs_put(NULL, NULL, 0, NULL, NULL, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_delete(NULL, NULL, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_flush(NULL, 0, 0, NULL, NULL), KVS_EARGUMENT);
  WANT(kvs_pin(NULL, NULL, NULL, 0, NULL), KVS_EARGUMENT);
  WANT(kvs_unpin(NULL, NULL, &n), KVS_EARGUMENT);
  WANT(kvs_ping(NULL), KVS_EARGUMENT);
  WANT(kvs_poll(NULL, 0), KVS_EARGUMENT);
  WANT(kvs_stats(NULL, &json), KVS_EARGUMENT);
  kvs_close(NULL);
  kvs_got_free(NULL);
  kvs_fill_free(NULL);
  if (kvs_info_of(NULL) != NULL || kvs_error_of(NULL)->code != KVS_EARGUMENT) want("kvs_info_of(NULL)", 0, 1);
}

static void connecting(const char *socket) {
  kvs_client *c;
  kvs_error e;
  kvs_options o;
  memset(&o, 0, sizeof o);
  WANT(kvs_connect(&o, &c, &e), KVS_EARGUMENT);
  o.socket = long_text;
  WANT(kvs_connect(&o, &c, &e), KVS_EARGUMENT);
  o.socket = "/nothing/here";
  WANT(kvs_connect(&o, &c, &e), KVS_ECONNECT);
  if (c != NULL || e.text == NULL || *e.text == 0) want("the error of kvs_connect", 0, 1);
  o.socket = socket;
  o.name = long_text;
  WANT(kvs_connect(&o, &c, &e), KVS_EARGUMENT);
  o.name = NULL;
  o.wants = 0xffffffffu; /* bits that are unknown are not granted */
  WANT(kvs_connect(&o, &c, NULL), KVS_OK);
  lies(kvs_info_of(c));
  kvs_close(c);
}

static void spaces(kvs_client *c) {
  kvs_space s;
  kvs_space_info info;
  kvs_pair tag = {NULL, "x"};
  memset(&s, 0, sizeof s);
  WANT(kvs_open_space(c, NULL, &info), KVS_EARGUMENT);
  WANT(kvs_open_space(c, &s, NULL), KVS_EARGUMENT);
  WANT(kvs_open_space(c, &s, &info), KVS_BAD_REQUEST); /* without a model */
  s.model = long_text;
  WANT(kvs_open_space(c, &s, &info), KVS_EARGUMENT);
  s.model = "m";
  s.dtype = "u8";
  s.worker = 7; /* not below world */
  WANT(kvs_open_space(c, &s, &info), KVS_BAD_REQUEST);
  s.worker = 0;
  s.n_tags = 1;
  WANT(kvs_open_space(c, &s, &info), KVS_EARGUMENT);
  s.tags = &tag;
  WANT(kvs_open_space(c, &s, &info), KVS_EARGUMENT);
  tag.name = "a";
  s.n_tags = 33;
  WANT(kvs_open_space(c, &s, &info), KVS_EARGUMENT);
  s.n_tags = 1;
  s.method = "given";
  s.chunk_tokens = 4;
  WANT(kvs_open_space(c, &s, &info), KVS_OK);
}

static void prompts(kvs_client *c) {
  uint32_t tokens[4] = {1, 2, 3, 4};
  uint8_t hashes[16] = {1};
  kvs_match m;
  kvs_job *job;
  kvs_load load;
  kvs_prompt p;
  memset(&p, 0, sizeof p);
  memset(&load, 0, sizeof load);
  WANT(kvs_lookup(c, NULL, 0, &m), KVS_EARGUMENT);
  WANT(kvs_lookup(c, &p, 0, &m), KVS_EARGUMENT); /* nothing named */
  p.hashes = hashes;
  p.n_hashes = 1;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_EARGUMENT); /* hashes of no bytes */
  p.hash_bytes = 16;
  WANT(kvs_lookup(c, &p, 8, &m), KVS_EARGUMENT);
  WANT(kvs_lookup(c, &p, 0, NULL), KVS_EARGUMENT);
  p.tokens = tokens;
  p.n_tokens = 4;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_EARGUMENT); /* two forms */
  p.hashes = NULL;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_BAD_REQUEST); /* tokens in a given space */
  p.alone = 1;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_EARGUMENT);
  p.alone = 0;
  p.space = 99;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_UNKNOWN_SPACE);
  memset(&p, 0, sizeof p);
  p.kept = 77;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_UNKNOWN_CHAIN);
  p.keep = 1;
  WANT(kvs_lookup(c, &p, 0, &m), KVS_EARGUMENT);
  memset(&p, 0, sizeof p);
  p.ref = 12345;
  WANT(kvs_prefetch(c, &p, NULL, &job, NULL), KVS_UNKNOWN_JOB);
  WANT(kvs_prefetch(c, &p, NULL, NULL, NULL), KVS_EARGUMENT);
  load.policy = 9;
  WANT(kvs_prefetch(c, &p, &load, &job, NULL), KVS_EARGUMENT);
  load.policy = 0;
  load.lookup_id = long_text;
  WANT(kvs_prefetch(c, &p, &load, &job, NULL), KVS_EARGUMENT);
  WANT(kvs_renew(c, 12345, NULL), KVS_UNKNOWN_JOB);
  WANT(kvs_pin(c, &p, "", 0, NULL), KVS_EARGUMENT);
  WANT(kvs_unpin(c, NULL, NULL), KVS_EARGUMENT);
  WANT(kvs_stats(c, NULL), KVS_EARGUMENT);
}

static void storing(kvs_client *c) {
  uint8_t hashes[32] = {1, 2};
  uint32_t size = 100, sizes[2] = {1, 1};
  const void *payloads[2] = {"x", NULL};
  kvs_result results[2];
  kvs_prompt p;
  kvs_wish w;
  kvs_fill *fill;
  kvs_slot slot;
  memset(&p, 0, sizeof p);
  memset(&w, 0, sizeof w);
  hashes[16] = 3;
  p.hashes = hashes;
  p.n_hashes = 2;
  p.hash_bytes = 16;
  WANT(kvs_reserve(c, &p, NULL, &fill), KVS_EARGUMENT);
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_EARGUMENT); /* no sizes */
  w.sizes = &size;
  w.n_sizes = 1;
  w.flags = 64;
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_EARGUMENT);
  w.flags = 0;
  w.first = 9; /* behind the end */
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_BAD_REQUEST);
  w.first = 0;
  size = 0;
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_BAD_REQUEST);
  size = 0xffffffffu;
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_TOO_LARGE);
  if (kvs_error_of(c)->limit == 0) want("the limit of too_large", 0, 1);
  WANT(kvs_put(c, &p, 0, payloads, sizes, 2, results), KVS_EARGUMENT); /* a null payload */
  WANT(kvs_put(c, &p, 0, payloads, sizes, 0, results), KVS_EARGUMENT);
  sizes[0] = 0xffffffffu;
  WANT(kvs_put(c, &p, 0, payloads, sizes, 1, results), KVS_TOO_LARGE);
  size = 100;
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_OK);
  WANT((int)kvs_fill_slots(fill, NULL, NULL), 2);
  WANT(kvs_slot_of(fill, 2, &slot), KVS_EARGUMENT);
  WANT(kvs_commit(fill, 3, 0, results), KVS_EARGUMENT);
  WANT(kvs_commit(fill, 1, 2, results), KVS_EARGUMENT);
  WANT(kvs_abort(fill, 0, 3), KVS_EARGUMENT);
  WANT(kvs_abort(fill, 0, 1), KVS_OK);
  WANT(kvs_commit(fill, 0, 1, results), KVS_OK);
  want("an aborted slot", results[0].code, KVS_NOT_RESERVED);
  kvs_fill_free(fill); /* aborts the other */
}

/* What outlives its client is refused, and can be freed. */
static void after_close(kvs_client *c) {
  uint8_t hashes[16] = {9};
  uint32_t size = 10;
  kvs_prompt p;
  kvs_wish w;
  kvs_fill *fill;
  kvs_job *job;
  kvs_slot slot;
  memset(&p, 0, sizeof p);
  memset(&w, 0, sizeof w);
  p.hashes = hashes;
  p.n_hashes = 1;
  p.hash_bytes = 16;
  w.sizes = &size;
  w.n_sizes = 1;
  WANT(kvs_reserve(c, &p, &w, &fill), KVS_OK);
  WANT(kvs_prefetch(c, &p, NULL, &job, NULL), KVS_OK);
  kvs_close(c);
  WANT(kvs_wait(job, 0, 0), KVS_EARGUMENT);
  WANT(kvs_slot_of(fill, 0, &slot), KVS_OK);
  if (slot.memory != NULL) want("memory of a closed client", 1, 0);
  WANT(kvs_commit(fill, 0, 0, NULL), KVS_EARGUMENT);
  kvs_fill_free(fill);
  WANT(kvs_release(job), KVS_ELOST);
}

int main(int argc, char **argv) {
  kvs_options o;
  kvs_client *c;
  if (argc != 2) return 2;
  memset(long_text, 'x', sizeof long_text - 1);
  memset(&o, 0, sizeof o);
  o.socket = argv[1];
  o.wants = KVS_ARENA | KVS_STAGING | KVS_PUSHES;
  null_client();
  connecting(argv[1]);
  if (kvs_connect(&o, &c, NULL) != KVS_OK) return 2;
  spaces(c);
  prompts(c);
  storing(c);
  after_close(c);
  return failures > 0;
}
