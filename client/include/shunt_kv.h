/* shunt_kv.h: a store of blocks under keys, in memory, in a file and in objects; over shunt.h,
 * whose rules on errors, threads, fork() and timeouts hold here. docs/kv.md has the words, what
 * moves when, and what can go wrong.
 */
#ifndef SHUNT_KV_H_
#define SHUNT_KV_H_

#include "shunt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_kv shunt_kv;           /* a store */
typedef struct shunt_kv_call shunt_kv_call; /* a call under way */

typedef int32_t shunt_kv_tier; /* shunt_kv_tier_value */
enum shunt_kv_tier_value {
  SHUNT_KV_NONE = -1,
  SHUNT_KV_MEMORY = 0,
  SHUNT_KV_FILE = 1,
  SHUNT_KV_OBJECTS = 2
};

typedef struct shunt_kv_options {
  size_t struct_size;
  uint64_t block_bytes;  /* the most that a block may have; slots are multiples of 4096 */
  uint64_t memory_bytes; /* at least a block */
  const char* directory; /* NULL: no file tier. It must be there, and no other store's */
  uint64_t file_bytes;   /* with a directory: at least memory_bytes; taken from the disk at once */
  /* NULL: no objects. The endpoint is one of the daemon's (storage.s3). */
  const char* object_endpoint;
  const char* object_bucket;
  const char* object_prefix;        /* NULL: "" */
  uint64_t object_bytes;            /* at least memory_bytes */
  const char* object_access_key_id; /* NULL: requests are not signed */
  const char* object_secret_access_key;
  const char* object_session_token; /* NULL: none */
} shunt_kv_options;

/* Opens a store; it uses the session, whose end is its end. FAILED_PRECONDITION: another store has
 * the directory, or its index is none, is of another version or of other slots; RESOURCE_EXHAUSTED:
 * no room for the tiers; NOT_FOUND, PERMISSION_DENIED: the directory. */
SHUNT_API int shunt_kv_open(shunt_session* session, const shunt_kv_options* options,
                            shunt_kv** store);
/* Ends it: puts that wait for room get CANCELLED, other calls are waited for. Does not flush.
 * Calls' handles stay valid. NULL is allowed. */
SHUNT_API void shunt_kv_close(shunt_kv* store);
/* What opening has found to be wrong, and what it did about that; "" if nothing. Valid as long as
 * the store. */
SHUNT_API const char* shunt_kv_notes(const shunt_kv* store);

typedef struct shunt_kv_key {
  const void* data;
  uint64_t bytes; /* 1 to 64 */
} shunt_kv_key;

/* A block and the caller's memory for it, in a region of the session. */
typedef struct shunt_kv_block {
  shunt_kv_key key;
  void* pointer;
  uint64_t bytes; /* put: of the block; get: of the room for it */
} shunt_kv_block;

typedef struct shunt_kv_result {
  int32_t code;       /* get: NOT_FOUND is a miss, OUT_OF_RANGE: there is too little room */
  shunt_kv_tier tier; /* get: where it was; put: where it is */
  uint64_t bytes;     /* of the block */
} shunt_kv_result;

typedef struct shunt_kv_call_options {
  size_t struct_size;
  int64_t timeout_ns; /* 0: 60 s; SHUNT_FOREVER: none */
} shunt_kv_call_options;

/* With `call` NULL these return when the call has ended, with its outcome and, if `results` is not
 * NULL, a result for each block. Otherwise they return at once with a handle; `results` is not used
 * then. Arrays and keys belong to the caller again when they return, blocks' memory when the call
 * has ended. A block whose key is in the store is not copied again: it becomes the most recent.
 * `options` may be NULL. The outcome is OK if each block was put; INVALID_ARGUMENT for a block that
 * is empty, too long, or outside regions, or whose key is in the store with another length;
 * DEADLINE_EXCEEDED, or a tier's error, if there was no room. */
SHUNT_API int shunt_kv_put(shunt_kv* store, const shunt_kv_block* blocks, uint64_t count,
                           const shunt_kv_call_options* options, shunt_kv_result* results,
                           shunt_kv_call** call);
/* The outcome is OK if each block was got or is missing. The room of a block that was not got holds
 * anything. INVALID_ARGUMENT for two blocks' room that overlaps. */
SHUNT_API int shunt_kv_get(shunt_kv* store, const shunt_kv_block* blocks, uint64_t count,
                           const shunt_kv_call_options* options, shunt_kv_result* results,
                           shunt_kv_call** call);
/* All blocks whose put had ended are in the file tier, or without one in objects, and durable, and
 * so is what was erased. FAILED_PRECONDITION: there is neither. `call` as above. */
SHUNT_API int shunt_kv_flush(shunt_kv* store, const shunt_kv_call_options* options,
                             shunt_kv_call** call);

/* The tier of each key, or SHUNT_KV_NONE, and in `*prefix` how many from the first on are there.
 * Either may be NULL. Changes no order, and is not counted. */
SHUNT_API int shunt_kv_lookup(shunt_kv* store, const shunt_kv_key* keys, uint64_t count,
                              shunt_kv_tier* tiers, uint64_t* prefix);
/* Forgets blocks, in all tiers; `*erased`, which may be NULL, is how many were there. Objects stay
 * with their server. */
SHUNT_API int shunt_kv_erase(shunt_kv* store, const shunt_kv_key* keys, uint64_t count,
                             uint64_t* erased);

typedef struct shunt_kv_tier_facts {
  uint64_t slots;     /* blocks that it can hold; 0: there is no such tier */
  uint64_t blocks;    /* that it holds */
  uint64_t bytes;     /* of these */
  uint64_t hits;      /* blocks that gets have had from it */
  uint64_t hit_bytes; /* of these */
  uint64_t written;   /* blocks that were put, moved down or promoted into it */
  uint64_t evictions; /* blocks that it gave up for others */
} shunt_kv_tier_facts;

typedef struct shunt_kv_facts {
  size_t struct_size;           /* set by the caller */
  shunt_kv_tier_facts tiers[3]; /* by shunt_kv_tier_value */
  uint64_t puts;                /* blocks, also those that were there */
  uint64_t puts_present;        /* those */
  uint64_t put_bytes;           /* of blocks that were copied */
  uint64_t misses;              /* blocks of gets */
  uint64_t promotions;
  uint64_t dropped;  /* blocks that no tier holds any more, for want of room */
  uint64_t corrupt;  /* blocks that were not what the index says; misses too */
  uint64_t errors;   /* of disks and servers, in the background too */
  uint64_t dirty;    /* blocks that are in memory alone and are to be written down */
  uint64_t rewrites; /* of the index */
} shunt_kv_facts;

SHUNT_API int shunt_kv_stats(shunt_kv* store, shunt_kv_facts* facts);

/* ---- Handles: one thread at a time, or several that wait ------------------------------------ */

/* *done = 1 when it has ended; the return value is then its outcome. Never blocks. */
SHUNT_API int shunt_kv_call_poll(shunt_kv_call* call, int* done);
/* Blocks until it has ended and returns its outcome. A timeout here (0: 60 s) gives
 * DEADLINE_EXCEEDED and leaves it running. */
SHUNT_API int shunt_kv_call_wait(shunt_kv_call* call, int64_t timeout_ns);
/* A descriptor that becomes readable when it has ended. Owned by the handle. */
SHUNT_API int shunt_kv_call_fd(shunt_kv_call* call, int* fd);
/* Of a call that has ended: a result for each of its `count` blocks. */
SHUNT_API int shunt_kv_call_results(shunt_kv_call* call, shunt_kv_result* results, uint64_t count);
/* Frees the handle. A call that has not ended is waited for first. NULL is allowed. */
SHUNT_API void shunt_kv_call_release(shunt_kv_call* call);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHUNT_KV_H_ */
