/* A store in a library of its own, loaded by Shunt at run time. Plain C, versioned: build against
 * this one header. It has the shape of Shunt's own stores: passive, one thread, post and poll.
 *
 * The library exports shunt_store_plugin_table(), which returns a table that lives as long as the
 * process. A library built against a later minor revision has a larger table; one built against
 * another version is refused. Nothing may throw or exit through these functions; none blocks, but
 * create and destroy. The rules of an operation's outcome are those of runtime/storage/store.h.
 *
 *   post...(store, request, token)   starts an operation; ends with one completion, errors too
 *   poll(store, completions, n)      moves what can be moved, hands out what has ended
 *   fd(store)                        readable when poll may have something to do
 */
#ifndef SHUNT_STORE_PLUGIN_H_
#define SHUNT_STORE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHUNT_STORE_PLUGIN_VERSION 1
#define SHUNT_STORE_PLUGIN_SYMBOL "shunt_store_plugin_table"

/* Codes of completions: those of gRPC. */
enum {
  SHUNT_STORE_OK = 0,
  SHUNT_STORE_CANCELLED = 1,
  SHUNT_STORE_UNKNOWN = 2,
  SHUNT_STORE_INVALID_ARGUMENT = 3,
  SHUNT_STORE_DEADLINE_EXCEEDED = 4,
  SHUNT_STORE_NOT_FOUND = 5,
  SHUNT_STORE_ALREADY_EXISTS = 6,
  SHUNT_STORE_PERMISSION_DENIED = 7,
  SHUNT_STORE_RESOURCE_EXHAUSTED = 8,
  SHUNT_STORE_FAILED_PRECONDITION = 9,
  SHUNT_STORE_ABORTED = 10,
  SHUNT_STORE_OUT_OF_RANGE = 11,
  SHUNT_STORE_UNIMPLEMENTED = 12,
  SHUNT_STORE_INTERNAL = 13,
  SHUNT_STORE_UNAVAILABLE = 14,
  SHUNT_STORE_DATA_LOSS = 15,
  SHUNT_STORE_UNAUTHENTICATED = 16
};

/* Features. */
enum {
  SHUNT_STORE_DESCRIPTORS = 1, /* opens descriptors of clients */
  SHUNT_STORE_IN_PLACE = 2     /* writes into existing objects, and sync */
};

enum { SHUNT_STORE_READ = 0, SHUNT_STORE_READ_WRITE = 1 };

/* Deadlines are CLOCK_MONOTONIC in nanoseconds; INT64_MAX: none. Strings end with a zero byte, hold
 * no other, and like all that a request points to are valid during the call only: but for the
 * memory of pieces, which is the store's until the completion. */

typedef struct shunt_store_open {
  const char* container; /* null with a descriptor */
  const char* name;
  int64_t deadline_ns;
  int32_t descriptor; /* the store's from now on; or -1 */
  uint32_t access;
} shunt_store_open;

typedef struct shunt_store_begin {
  const char* container;
  const char* name;
  uint64_t bytes;
  int64_t deadline_ns;
  uint32_t if_absent;
  uint32_t reserved; /* 0 */
} shunt_store_begin;

typedef struct shunt_store_piece {
  uint64_t object;
  uint64_t offset;
  void* memory; /* only read by writes */
  uint64_t bytes;
} shunt_store_piece;

typedef struct shunt_store_transfer {
  const shunt_store_piece* pieces;
  uint64_t count;
  int64_t deadline_ns;
} shunt_store_transfer;

typedef struct shunt_store_completion {
  uint64_t token;
  uint64_t bytes;
  uint64_t object;
  uint32_t code;
  uint32_t reserved;
  char words[512]; /* of an error: object, value seen, value expected; ends with a zero byte */
} shunt_store_completion;

typedef struct shunt_store_plugin {
  uint32_t size;    /* sizeof(shunt_store_plugin) */
  uint32_t version; /* SHUNT_STORE_PLUGIN_VERSION */
  const char* name;
  uint32_t features;
  uint32_t reserved; /* 0 */

  /* A code; `config` is text from Shunt's configuration. Words as in completions. With OK the
   * store, which is not null. */
  uint32_t (*create)(const char* config, void** store, char* words, size_t words_bytes);
  /* Waits until no memory is touched any more; drafts leave no trace. */
  void (*destroy)(void* store);

  void (*post_open)(void* store, const shunt_store_open* request, uint64_t token);
  void (*post_read)(void* store, const shunt_store_transfer* request, uint64_t token);
  void (*post_write)(void* store, const shunt_store_transfer* request, uint64_t token);
  void (*post_sync)(void* store, uint64_t object, int64_t deadline_ns, uint64_t token);
  void (*post_begin)(void* store, const shunt_store_begin* request, uint64_t token);
  void (*post_commit)(void* store, uint64_t draft, int64_t deadline_ns, uint64_t token);
  void (*post_abort)(void* store, uint64_t draft, uint64_t token);
  void (*close)(void* store, uint64_t object);
  void (*cancel)(void* store, uint64_t token);
  size_t (*poll)(void* store, shunt_store_completion* out, size_t count);
  int (*fd)(void* store);
} shunt_store_plugin;

/* What the library exports by the name SHUNT_STORE_PLUGIN_SYMBOL. */
typedef const shunt_store_plugin* (*shunt_store_plugin_function)(void);

#ifdef __cplusplus
}
#endif

#endif /* SHUNT_STORE_PLUGIN_H_ */
