/*
 * kvstored.h: a client of kvstored in C99, of one header and one source file.
 *
 * It speaks version 2 of the protocol of docs/protocol.md, over a Unix socket,
 * and maps the memory of the daemon: payloads are read and written where they
 * lie. Linux only.
 *
 * Calls block. One thread at a time may use a client and what came from it;
 * several clients are independent of each other. Nothing here is global, no
 * thread is started, no signal is raised, and nothing is printed.
 *
 * Every call returns an int: 0 (KVS_OK), a code of the daemon (above 0, as in
 * the table of errors of the protocol), or a fault on this side (below 0).
 * kvs_error_of says more about the last one of a client. Bad arguments are
 * KVS_EARGUMENT, and change nothing; so is a null client, for every call.
 *
 * After KVS_ELOST, KVS_ETIMEOUT and KVS_EPROTOCOL the connection is closed:
 * leases and fills have ended with it, whatever was read under a lease and not
 * yet released must be forgotten, and every further call returns KVS_ELOST.
 * Free jobs and fills, close the client, and connect again.
 */
#ifndef KVSTORED_H
#define KVSTORED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes: of refused calls, jobs, slots and results alike. */
enum {
  KVS_OK = 0,
  KVS_BAD_REQUEST = 1,
  KVS_UNKNOWN_OP = 2,
  KVS_VERSION = 3,
  KVS_DENIED = 4,
  KVS_TOO_LARGE = 5,
  KVS_NO_SPACE = 6,
  KVS_OVER_BUDGET = 7,
  KVS_NOT_FOUND = 8,
  KVS_UNKNOWN_SPACE = 9,
  KVS_UNKNOWN_JOB = 10,
  KVS_UNKNOWN_FILL = 11,
  KVS_REVOKED = 12,
  KVS_NOT_RESERVED = 13,
  KVS_INCONSISTENT_CHAIN = 14,
  KVS_CLOSED = 15,
  KVS_TIER_OFF = 16,
  KVS_TIMEOUT = 17,
  KVS_INTERNAL = 18,
  KVS_UNKNOWN_OPTION = 19,
  KVS_UNSUPPORTED = 20,
  KVS_OVER_QUOTA = 21,
  KVS_STARTING = 22,
  KVS_CANCELLED = 23,
  KVS_UNKNOWN_CHAIN = 24,
  KVS_RUNNING = 25,
  KVS_PENDING = 26,
  KVS_EXISTS = 27,
  KVS_DIFFERS = 28,
  KVS_CORRUPT = 29,
  KVS_FAILED = 30,
  KVS_GAP = 31,
  KVS_NEVER_STORED = 32,
  KVS_EVICTED = 33,
  KVS_DECLINED = 34,
  KVS_OTHER_SPACE = 35,
  KVS_GROUP = 36,

  KVS_EARGUMENT = -1, /* the call makes no sense: see kvs_error_of */
  KVS_EMEMORY = -2,   /* no memory; nothing was changed */
  KVS_ECONNECT = -3,  /* there is no daemon at that socket */
  KVS_ELOST = -4,     /* the connection has ended */
  KVS_ETIMEOUT = -5,  /* the daemon did not answer in time */
  KVS_EPROTOCOL = -6  /* the daemon sent what makes no sense */
};

/* Retry classes of an error. */
enum {
  KVS_RETRY_NEVER = 0,    /* not as it is */
  KVS_RETRY_RELEASE = 1,  /* when this client has released something */
  KVS_RETRY_LATER = 2,    /* after after_ms */
  KVS_RETRY_RECONNECT = 3 /* on a new connection, after after_ms */
};

/* What a client wants of hello, and is granted. */
enum { KVS_ARENA = 1, KVS_STAGING = 2, KVS_DIRECT = 4, KVS_PUSHES = 8 };

/* Tiers to search; 0 is all. */
enum { KVS_CPU = 1, KVS_DISK = 2, KVS_REMOTE = 4 };

/* When the loading of a job stops. */
enum { KVS_AS_CONFIGURED = 0, KVS_BEST_EFFORT = 1, KVS_WAIT_COMPLETE = 2, KVS_AFTER_LOAD_MS = 3 };

/* Flags of a reserve, and of a prefetch. */
enum { KVS_ALL_OR_NOTHING = 1, KVS_NO_EVICT = 2, KVS_SHARED_FILL = 4 };
enum { KVS_PIN_JOB = 1, KVS_SHARED_JOB = 2 };

/* The longest text, in bytes. */
enum { KVS_MAX_STR = 1024 };

typedef struct kvs_client kvs_client;
typedef struct kvs_job kvs_job;
typedef struct kvs_fill kvs_fill;
typedef struct kvs_got kvs_got;

/* The name of a code, such as "too_large"; "unknown" where there is none. The
 * text lives for ever. */
const char *kvs_name(int code);

/* What a client asks for. All zero but socket is fine. */
typedef struct kvs_options {
  const char *socket;     /* path of the daemon's socket */
  const char *name;       /* of this client, for people; may be null */
  uint32_t wants;         /* KVS_ARENA and so on; 0: payloads cross the socket */
  uint32_t timeout_ms;    /* how long an answer may take beyond the deadline of
                             its call; 0: 10,000 */
  uint64_t staging_bytes; /* wished size of the staging window; 0: the daemon's */
} kvs_options;

/* What hello has told. Pointers are into the client and end with it. */
typedef struct kvs_info {
  uint32_t granted;     /* KVS_ARENA and so on */
  uint32_t rights;      /* 1 read, 2 write, 4 admin */
  uint32_t put_mode;    /* 0 inline, 1 staged, 2 direct */
  uint32_t max_payload; /* bytes of one chunk */
  uint32_t max_request; /* bytes of a body */
  uint32_t max_reply;   /* bytes of a body */
  uint32_t lease_ms;    /* age of a lease that is not renewed */
  uint32_t prefetch_ms; /* how long a get waits without a deadline */
  uint64_t epoch;       /* of this start of the daemon */
  uint64_t connection;  /* number of this connection */
  const void *arena;    /* mapped memory, null if not granted: to register it */
  uint64_t arena_bytes;
  void *staging;
  uint64_t staging_bytes;
  const char *server; /* version of the daemon, for people */
} kvs_info;

/* More about the last call that did not return 0. */
typedef struct kvs_error {
  int code;
  int retry;          /* KVS_RETRY_NEVER and so on */
  uint32_t after_ms;  /* before it is tried again */
  uint64_t limit;     /* the largest value that would have passed; 0: none told */
  const char *text;   /* for people; until the next call */
} kvs_error;

/* Connects, says hello and maps what is granted; waits timeout_ms for a daemon that
 * is starting. *client is null unless 0 is returned. error may be null; its text then is static. */
int kvs_connect(const kvs_options *options, kvs_client **client, kvs_error *error);

/* Ends the connection, unmaps its memory and frees the client; null is passed
 * over. Its jobs and fills must not be used any more but to be freed, before or
 * after. End DMA and unregister the memory first. */
void kvs_close(kvs_client *client);

/* Null for a null client. */
const kvs_info *kvs_info_of(const kvs_client *client);

/* Never null. */
const kvs_error *kvs_error_of(const kvs_client *client);

/* One name and value. */
typedef struct kvs_pair {
  const char *name;
  const char *value;
} kvs_pair;

/* All that must be equal for payloads to be exchangeable. Null texts are empty. */
typedef struct kvs_space {
  const char *model;     /* required */
  const char *revision;
  const char *lora;
  const char *dtype;     /* required */
  const char *method;    /* "given", "given:NAME", "sha256", "xxh64"; empty: the daemon's */
  const char *group;
  const char *salt;
  uint32_t world;        /* ranks; 0 is taken as 1 */
  uint32_t worker;       /* this rank, below world */
  uint32_t chunk_tokens; /* 0: the daemon's */
  const kvs_pair *tags;  /* in byte order of their names */
  size_t n_tags;         /* at most 32 */
} kvs_space;

typedef struct kvs_space_info {
  uint32_t handle;       /* names the space on this connection */
  uint32_t chunk_tokens;
  uint8_t id[16];
} kvs_space_info;

int kvs_open_space(kvs_client *client, const kvs_space *space, kvs_space_info *info);

/* Which chunks a call is about: one of tokens, hashes, ref, kept; none of them
 * is the whole space, for kvs_delete. The arrays are read within the call. */
typedef struct kvs_prompt {
  uint32_t space;         /* handle; not for ref and kept */
  const uint32_t *tokens; /* the daemon hashes them */
  size_t n_tokens;
  const void *hashes;     /* or of the engine: n_hashes of hash_bytes (8, 16, 32) each */
  size_t n_hashes;
  uint32_t hash_bytes;
  uint32_t last_tokens;   /* of the last hash; 0: as many as all others */
  uint64_t ref;           /* or the chain of this job or fill */
  uint64_t kept;          /* or that of this number */
  uint64_t keep;          /* tokens and hashes: the daemon shall keep the chain so */
  uint32_t skip;          /* leading chunks left out; all numbers start behind them */
  int save_unfull;        /* a last chunk of fewer tokens counts too */
  int alone;              /* hashes: each chunk stands alone */
} kvs_prompt;

typedef struct kvs_count {
  uint64_t tokens;
  uint32_t chunks;
} kvs_count;

/* The longest leading run that is there, and where its chunks are nearest. */
typedef struct kvs_match {
  kvs_count total;
  kvs_count tiers[3]; /* DRAM, disk, remote */
  uint32_t worth;     /* chunks that are there or worth storing */
} kvs_match;

/* Why the chunk behind a match is not there. */
typedef struct kvs_missing {
  int code;       /* KVS_NEVER_STORED and so on; KVS_OK: nothing is missing, or the daemon does not say */
  unsigned tier;  /* KVS_CPU and so on: that it left, that did not take it, or that is off; 0: none */
  uint32_t ago_s; /* since it left; UINT32_MAX: not known */
} kvs_missing;

/* How much of a prompt is there. Takes no lease. */
int kvs_lookup(kvs_client *client, const kvs_prompt *prompt, unsigned search, kvs_match *match);

/* The same, and why it is not there to its end. */
int kvs_lookup_why(kvs_client *client, const kvs_prompt *prompt, unsigned search, kvs_match *match,
                   kvs_missing *missing);

typedef struct kvs_load {
  unsigned search;       /* KVS_CPU and so on; 0: all */
  unsigned flags;        /* KVS_PIN_JOB, KVS_SHARED_JOB */
  unsigned policy;       /* KVS_AS_CONFIGURED and so on */
  uint32_t load_ms;      /* when loading stops; 0: as configured */
  const char *lookup_id; /* the engine's name for its request; may be null */
  kvs_missing *missing;  /* is told why the prompt is not there to its end; may be null */
} kvs_load;

/* Leases what is in DRAM of a prompt and begins to load the rest. load may be
 * null. *job is the caller's, until kvs_release; match may be null. */
int kvs_prefetch(kvs_client *client, const kvs_prompt *prompt, const kvs_load *load, kvs_job **job,
                 kvs_match *match);

/* What is known of a job; no call asks the daemon. */
typedef struct kvs_state {
  uint64_t id;      /* names the job in kvs_prompt.ref and kvs_renew */
  int code;         /* KVS_RUNNING, or why it is done */
  int failed_tier;  /* with KVS_FAILED: KVS_DISK or KVS_REMOTE */
  kvs_count ready;  /* the leading run in DRAM, under the lease */
  uint32_t refs;    /* chunks whose place is known here, from the first on */
} kvs_state;

int kvs_state_of(const kvs_job *job, kvs_state *state);

/* Waits until min_tokens are ready, the job is done, or deadline_ms have passed,
 * whichever is first; UINT64_MAX tokens is all. */
int kvs_wait(kvs_job *job, uint64_t min_tokens, uint32_t deadline_ms);

/* One chunk under a lease. memory is null where the arena is not mapped. */
typedef struct kvs_chunk {
  const void *memory;
  uint64_t sum; /* XXH3-64 of its bytes */
  uint32_t bytes;
  uint32_t tokens;
} kvs_chunk;

/* Chunk i of a job, for i below kvs_state.refs. What is read there is good only
 * if kvs_release says so afterwards. */
int kvs_chunk_of(const kvs_job *job, uint32_t i, kvs_chunk *chunk);

/* Ends job and lease, and frees the job, whatever is returned: 0, and what was
 * read is good; KVS_REVOKED and anything else, forget it. Null is KVS_EARGUMENT. */
int kvs_release(kvs_job *job);

/* Starts the age of a lease or fill anew. holds_ms may be null. */
int kvs_renew(kvs_client *client, uint64_t id, uint32_t *holds_ms);

/* Chunks whose bytes came over the socket. */
int kvs_get(kvs_client *client, const kvs_prompt *prompt, uint32_t first, uint32_t max_chunks, uint32_t max_bytes,
            uint32_t deadline_ms, kvs_got **got);
uint32_t kvs_got_chunks(const kvs_got *got);
/* The memory is of got, until it is freed. */
int kvs_got_chunk(const kvs_got *got, uint32_t i, kvs_chunk *chunk);
void kvs_got_free(kvs_got *got);

/* What is to be stored: count chunks from chunk first on. sizes has one size
 * for all (n_sizes 1) or one each. */
typedef struct kvs_wish {
  uint32_t first;
  uint32_t count; /* 0: all that follow */
  const uint32_t *sizes;
  size_t n_sizes;
  unsigned flags;       /* KVS_ALL_OR_NOTHING, KVS_NO_EVICT */
  uint32_t deadline_ms; /* how long to wait for room; 0: not at all */
  uint32_t max_age_s;   /* how long it may stay in any tier, from its commit; 0: as configured */
} kvs_wish;

/* Asks for room. *fill is the caller's until kvs_fill_free. Needs put mode 1 or
 * 2; KVS_UNSUPPORTED otherwise. */
int kvs_reserve(kvs_client *client, const kvs_prompt *prompt, const kvs_wish *wish, kvs_fill **fill);

typedef struct kvs_slot {
  int code;       /* KVS_OK: write it; KVS_EXISTS, KVS_PENDING: do not */
  uint32_t bytes;
  void *memory;   /* null unless KVS_OK */
} kvs_slot;

/* Slots of a fill, 0 for null; id and code (why there are fewer slots than asked
 * for, KVS_OK if there are not) may be null. */
uint32_t kvs_fill_slots(const kvs_fill *fill, uint64_t *id, int *code);
int kvs_slot_of(const kvs_fill *fill, uint32_t i, kvs_slot *slot);

typedef struct kvs_result {
  int code;     /* KVS_OK: stored; KVS_EXISTS, KVS_DIFFERS, KVS_NOT_RESERVED, ... */
  uint64_t sum; /* of the chunk that is there now, 0 if none */
} kvs_result;

/* Makes count slots from first on visible; count 0: all that follow. results
 * has room for as many, or is null. A fill without a granted slot needs no
 * commit, and its results are KVS_NOT_RESERVED. */
int kvs_commit(kvs_fill *fill, uint32_t first, uint32_t count, kvs_result *results);
/* Gives slots back that were not committed. */
int kvs_abort(kvs_fill *fill, uint32_t first, uint32_t count);
/* Frees a fill. What was granted and neither committed nor aborted is aborted. */
void kvs_fill_free(kvs_fill *fill);

/* Stores n payloads, whose bytes cross the socket, from chunk first on. results
 * has room for n, or is null. */
int kvs_put(kvs_client *client, const kvs_prompt *prompt, uint32_t first, const void *const *payloads,
            const uint32_t *sizes, size_t n, kvs_result *results);

/* Deletes chunks, or the whole space, in every tier. Without a deadline_ms it
 * waits until that is done, and at most kvs_options.timeout_ms: then the
 * connection is closed, as ever. chunks may be null. */
int kvs_delete(kvs_client *client, const kvs_prompt *prompt, uint32_t deadline_ms, uint64_t *chunks);

/* Waits until what was stored is below DRAM. deadline_ms as of kvs_delete. */
int kvs_flush(kvs_client *client, int durable, uint32_t deadline_ms, uint64_t *chunks, uint64_t *bytes);

/* Pins what is in DRAM of a prompt under a name. max_age_ms 0: as configured. */
int kvs_pin(kvs_client *client, const kvs_prompt *prompt, const char *name, uint32_t max_age_ms, kvs_count *pinned);
int kvs_unpin(kvs_client *client, const char *name, uint64_t *chunks);

int kvs_ping(kvs_client *client);

/* Takes in pushes, for at most wait_ms until there is one; 0: those that are
 * there. kvs_state_of shows what they brought. Needs KVS_PUSHES to be of use. */
int kvs_poll(kvs_client *client, uint32_t wait_ms);

/* Statistics as JSON; *json is the caller's, to be freed with free. */
int kvs_stats(kvs_client *client, char **json);

#ifdef __cplusplus
}
#endif

#endif
