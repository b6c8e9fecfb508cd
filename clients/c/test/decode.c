/*
 * decode: whether the C client takes frames of the daemon, for comparison with
 * the other clients. It reads frames, each behind its length of 4 bytes, and prints
 * "accepted" or "refused" for each. With -DFUZZ it is a target of libFuzzer.
 */
#include "../kvstored.c"

/* Reads every element of an array, as the client does. */
static void touch(struct in *i, const struct array *a, size_t known) {
  for (size_t k = 0; k < a->n; k++) {
    struct in e = at(a, k);
    in_skip(&e, known);
    if (e.bad) i->bad = 1;
  }
}

static void decode_reply(struct in *i, unsigned op) {
  struct greeting greeting;
  struct prefetched prefetched;
  struct state state;
  struct slots slots;
  struct array array;
  kvs_space_info info;
  kvs_match match;
  kvs_missing missing;
  const uint8_t *payloads;
  uint64_t a, b;
  switch (op) {
  case OP_HELLO: in_hello(i, &greeting); break;
  case OP_OPEN_SPACE: in_space_info(i, &info); in_options(i, NULL, NULL); break;
  case OP_LOOKUP: in_match(i, &match); in_skip(i, 8); in_options(i, match_option, &missing); break;
  case OP_PREFETCH: in_prefetched(i, &prefetched); break;
  case OP_WAIT: in_state(i, &state); touch(i, &state.refs, 24); break;
  case OP_RESERVE: in_reserve(i, &slots); touch(i, &slots.slots, 16); break;
  case OP_COMMIT: case OP_PUT: array = in_results(i); touch(i, &array, 16); break;
  case OP_GET: array = in_get(i, &payloads); touch(i, &array, 16); break;
  case OP_RELEASE: {
    in_skip(i, 8);
    struct in s = in_record(i);
    in_state(&s, &state);
    if (s.bad) i->bad = 1;
    in_options(i, NULL, NULL);
    break;
  }
  case OP_RENEW: case OP_UNPIN: case OP_DELETE: case OP_CANCEL: in_skip(i, 8); in_options(i, NULL, NULL); break;
  case OP_PIN: (void)in_count(i); in_options(i, NULL, NULL); break;
  case OP_FLUSH: in_flush(i, &a, &b); break;
  case OP_STATS: (void)in_text(i); in_options(i, NULL, NULL); break;
  case OP_ABORT: case OP_PING: in_options(i, NULL, NULL); break;
  default: i->bad = 1;
  }
}

/* Whether a frame, of a header and a body, is taken. */
static int accepted(const uint8_t *p, size_t n) {
  struct refusal refusal;
  struct state state;
  if (n < HEADER) return 0;
  struct frame f = frame_of(p);
  if (f.bytes != n - HEADER || f.bytes % 8 != 0) return 0;
  struct in i = in_of(p + HEADER, n - HEADER);
  if (f.kind == KIND_PUSH && f.op == OP_PREFETCH) {
    in_state(&i, &state);
    touch(&i, &state.refs, 24);
  } else if (f.kind == KIND_PUSH && f.op == OP_RESERVE) {
    in_skip(&i, 8);
    in_options(&i, NULL, NULL);
  } else if (f.kind != KIND_REPLY) {
    return 0;
  } else if (f.code != KVS_OK) {
    in_refusal(&i, &refusal);
  } else {
    decode_reply(&i, f.op);
  }
  return !i.bad;
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  /* The length of the body is the fuzzer's, so that it need not guess it. */
  if (n >= HEADER && n <= 1 << 16) {
    uint8_t *copy = malloc(n); /* of the exact size, for the sanitizer */
    if (copy == NULL) return 0;
    memcpy(copy, p, n);
    store_le(copy, n - HEADER, 4);
    (void)accepted(copy, n);
    free(copy);
  }
  return 0;
}
#else
int main(void) {
  uint8_t head[4];
  while (fread(head, 1, sizeof head, stdin) == sizeof head) {
    size_t n = (size_t)load_le(head, sizeof head);
    uint8_t *frame = malloc(n + (n == 0)); /* of the exact size, for the sanitizer */
    if (frame == NULL || fread(frame, 1, n, stdin) != n) return 2;
    puts(accepted(frame, n) ? "accepted" : "refused");
    free(frame);
  }
  return 0;
}
#endif
