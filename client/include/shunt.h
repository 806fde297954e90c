/* shunt.h: the C interface of libshunt, Shunt's client library.
 *
 * A process opens a session to its node's shuntd, joins communicators by name and calls collectives
 * on them. The C++ interface (shunt/client.h) and the Python package `shunt` are thin layers over
 * this one.
 *
 * Errors. Every function that can fail returns a shunt_code; 0 is success. shunt_last_error() gives
 * the words of the calling thread's last failure: which rank, which call, which value, what was
 * expected.
 *
 * Threads. Sessions, communicators, lists and transfers may be used from several threads at once. A
 * handle of an operation (shunt_op) belongs to one thread at a time. Nothing is used while another
 * thread releases it.
 *
 * Order. Collectives of one communicator take effect in the order in which they were made, and so
 * do the sends and receives of one pair of ranks in one direction. Nothing but waiting orders a
 * collective against sends and receives, or the calls of two communicators.
 *
 * fork(). A child made by fork() must not use the parent's sessions: its calls get
 * SHUNT_FAILED_PRECONDITION. It never keeps the parent's session alive and may open its own.
 *
 * Time. Timeouts are nanoseconds. 0 means the communicator's default, SHUNT_FOREVER none at all.
 */
#ifndef SHUNT_H_
#define SHUNT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SHUNT_BUILDING_LIBRARY)
#define SHUNT_API __attribute__((visibility("default")))
#else
#define SHUNT_API
#endif

#define SHUNT_FOREVER INT64_MAX

/* The same numbers as gRPC's status codes. */
typedef enum shunt_code {
  SHUNT_OK = 0,
  SHUNT_CANCELLED = 1,
  SHUNT_UNKNOWN = 2,
  SHUNT_INVALID_ARGUMENT = 3,  /* the call is wrong whatever the state; the words say how */
  SHUNT_DEADLINE_EXCEEDED = 4, /* names the ranks that did not come */
  SHUNT_NOT_FOUND = 5,
  SHUNT_ALREADY_EXISTS = 6, /* a rank that is taken */
  SHUNT_PERMISSION_DENIED = 7,
  SHUNT_RESOURCE_EXHAUSTED = 8,  /* a quota, or too many operations in flight */
  SHUNT_FAILED_PRECONDITION = 9, /* mismatched calls; a region in use */
  SHUNT_ABORTED = 10,            /* some rank aborted the communicator */
  SHUNT_OUT_OF_RANGE = 11,
  SHUNT_UNIMPLEMENTED = 12,
  SHUNT_INTERNAL = 13,
  SHUNT_UNAVAILABLE = 14,    /* the daemon or a rank's process is gone */
  SHUNT_DATA_LOSS = 15,      /* a disk or an object's server that fails */
  SHUNT_UNAUTHENTICATED = 16 /* an object's server does not know the keys */
} shunt_code;

/* Types and reductions travel as plain numbers: one that is none of these is answered with words,
 * while in C++ a variable of the enum's type could not even hold it. */
typedef int32_t shunt_dtype; /* shunt_dtype_value */
typedef int32_t shunt_redop; /* shunt_redop_value */

enum shunt_dtype_value {
  SHUNT_INT8 = 0,
  SHUNT_UINT8 = 1,
  SHUNT_INT32 = 2,
  SHUNT_UINT32 = 3,
  SHUNT_INT64 = 4,
  SHUNT_UINT64 = 5,
  SHUNT_FLOAT16 = 6,
  SHUNT_BFLOAT16 = 7,
  SHUNT_FLOAT32 = 8,
  SHUNT_FLOAT64 = 9,
  SHUNT_FLOAT8_E4M3 = 10,
  SHUNT_FLOAT8_E5M2 = 11
};

enum shunt_redop_value {
  SHUNT_SUM = 0,
  SHUNT_PROD = 1,
  SHUNT_MIN = 2,
  SHUNT_MAX = 3,
  SHUNT_AVG = 4,       /* integers: the sum divided by the world size, truncated toward zero */
  SHUNT_PREMUL_SUM = 5 /* sum of scalar[rank] * contribution[rank]; see shunt_call.scalar */
};

typedef struct shunt_session shunt_session;
typedef struct shunt_comm shunt_comm;
typedef struct shunt_op shunt_op;

/* "MAJOR.MINOR.PATCH", static. */
SHUNT_API const char* shunt_version(void);
/* Words of this thread's last failure; "" if none. Valid until this thread's next failing call. */
SHUNT_API const char* shunt_last_error(void);
/* The code's name, e.g. "INVALID_ARGUMENT"; static. */
SHUNT_API const char* shunt_code_name(int code);

/* ---- Sessions ------------------------------------------------------------------------------- */

typedef struct shunt_open_options {
  size_t struct_size; /* sizeof(shunt_open_options): lets the struct grow */
  const char*
      socket; /* path of the daemon's socket; NULL: $SHUNT_SOCKET, else /run/shunt/shuntd.sock */
  const char* name; /* shown by shuntctl; NULL: the program's name */
} shunt_open_options;

/* Opens a session: a lease that lives as long as this process, or until shunt_close. `options` may
 * be NULL. UNAVAILABLE if no daemon answers at the socket. */
SHUNT_API int shunt_open(const shunt_open_options* options, shunt_session** session);
/* Leaves all communicators, frees all regions. Every handle and pointer of the session is dead
 * after. NULL is allowed. */
SHUNT_API void shunt_close(shunt_session* session);
SHUNT_API uint64_t shunt_session_id(const shunt_session* session);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Allocates a shared region of at least `bytes` bytes (page granular, zeroed, mapped, resident).
 * Collectives on memory inside a region need no copies; they work on any other memory too, through
 * a staging copy that this process makes. RESOURCE_EXHAUSTED names the quota. */
SHUNT_API int shunt_alloc(shunt_session* session, size_t bytes, void** pointer);
/* Frees a region by the pointer that shunt_alloc gave. FAILED_PRECONDITION names the operation if
 * one in flight still uses it. */
SHUNT_API int shunt_free(shunt_session* session, void* pointer);
/* The id of the region that holds `pointer`, or NOT_FOUND. */
SHUNT_API int shunt_region_id(shunt_session* session, const void* pointer, uint64_t* region_id);

/* Registers the whole CUDA allocation that holds `pointer`, for collectives of communicators with
 * SHUNT_JOIN_DEVICE and for transfers: what is named of it later needs no further registration.
 * Known already: costs nothing, and counts. Memory of cudaMalloc, of cuMemCreate with an exportable
 * handle (PyTorch's expandable segments, shunt_alloc_device). INVALID_ARGUMENT: no CUDA memory;
 * FAILED_PRECONDITION, in words: memory that cannot be shared (cudaMallocAsync, managed), or that
 * the daemon cannot open; UNIMPLEMENTED: the daemon has no such GPU; UNAVAILABLE: no CUDA driver
 * here. */
SHUNT_API int shunt_register(shunt_session* session, const void* pointer);
/* Once for each shunt_register; the last forgets the allocation. Before the memory is freed.
 * FAILED_PRECONDITION names an operation in flight that uses it. */
SHUNT_API int shunt_deregister(shunt_session* session, const void* pointer);
/* GPU memory that can be shared with any daemon, also from inside a container; registered.
 * `device`: the ordinal of this process. Freed by shunt_free_device. */
SHUNT_API int shunt_alloc_device(shunt_session* session, int32_t device, size_t bytes,
                                 void** pointer);
SHUNT_API int shunt_free_device(shunt_session* session, void* pointer);

/* ---- Communicators -----------------------------------------------------------------------------
 */

typedef struct shunt_join_options {
  size_t struct_size;
  const char* name;   /* 1 to 128 bytes; communicators of one tenant and job are known by it */
  const char* job;    /* keeps jobs with equal names apart; NULL: $SHUNT_JOB, else "" */
  int32_t rank;       /* 0 <= rank < world_size */
  int32_t world_size; /* 1 to 128 on one node, up to 32,767 on several */
  int64_t timeout_ns; /* for the join itself; 0: 60 s */
  int64_t default_timeout_ns; /* for calls whose timeout is 0; 0: 60 s */
  const char* algorithm; /* between nodes: "ring", "double_tree" ... where a call has such a plan;
                            "": the fastest by what was measured; NULL: $SHUNT_ALGORITHM, else "" */
  uint32_t flags;        /* shunt_join_flag, or 0 */
} shunt_join_options;

typedef enum shunt_join_flag {
  /* The same inputs give the same bits in every run on as many nodes: nothing that was measured
   * decides how they meet. */
  SHUNT_JOIN_DETERMINISTIC = 1,
  /* Buffers of its calls may be GPU memory (registered, see shunt_register, or registered at their
   * first call), and calls may have a stream. All ranks give the flag, and are on one node.
   * UNIMPLEMENTED: the daemon has no GPU. */
  SHUNT_JOIN_DEVICE = 2
} shunt_join_flag;

/* Returns when all ranks have joined. DEADLINE_EXCEEDED names the ranks that are missing,
 * ALREADY_EXISTS who holds the rank, FAILED_PRECONDITION a differing world size, algorithm or flag.
 */
SHUNT_API int shunt_join(shunt_session* session, const shunt_join_options* options,
                         shunt_comm** comm);
/* A new communicator for each colour, ranks ordered by (key, old rank). Every rank of `comm` calls
 * it; a negative colour takes no part and gets *out = NULL. */
SHUNT_API int shunt_split(shunt_comm* comm, int32_t color, int32_t key, int64_t timeout_ns,
                          shunt_comm** out);
/* Waits for no other rank, only for the daemon's answer. Other ranks' calls that need one of this
 * rank end with UNAVAILABLE; what they do among themselves goes on. */
SHUNT_API void shunt_leave(shunt_comm* comm);
/* Ends every operation in flight on every rank with ABORTED and `reason`; the communicator takes no
 * more work until it is joined again: every later call gives the failure's code and words. */
SHUNT_API int shunt_abort(shunt_comm* comm, const char* reason);
SHUNT_API int32_t shunt_rank(const shunt_comm* comm);
SHUNT_API int32_t shunt_world_size(const shunt_comm* comm);

/* ---- Collectives --------------------------------------------------------------------------------
 *
 * Counts are in elements. With `op` NULL the call blocks until this rank's result is there;
 * otherwise it returns with a handle, at once unless the rank has 32 collectives (4 sends or
 * receives with one peer) in flight: then it waits for the oldest, and its deadline gives
 * RESOURCE_EXHAUSTED. The buffers belong to the operation until the handle is done. Contributions
 * are combined in rank order: the same inputs give the same bits on every run. In place means
 * NCCL's placement: out == in (all_reduce, reduce, broadcast); in == out
 * + rank * count (all_gather; gather at the root with the root's rank); out == in + rank * count
 * (reduce_scatter; scatter at the root). all_to_all cannot run in place. Other overlaps are
 * refused.
 */

/* With a handle: the operation moves only while this process polls or waits, as a blocking call
 * does; the daemon is not asked to see it through. For callers that wait at once, but in slices. */
#define SHUNT_CALL_ONLY_WHILE_WAITING 1u

/* `stream` holds: the call takes effect where it stands in that CUDA stream (a CUstream, NULL the
 * legacy default one) and the stream goes on when this rank's result is there. The call returns at
 * once, with `op` NULL too: its outcome then shows at the next call, or in shunt_sync. While the
 * stream is being captured the call becomes part of the graph, and `op` must be NULL. */
#define SHUNT_CALL_STREAM 2u

typedef struct shunt_call {
  size_t struct_size;
  int64_t timeout_ns;
  const void* scalar; /* SHUNT_PREMUL_SUM: one element of the data type, this rank's factor */
  uint32_t flags;     /* SHUNT_CALL_… */
  uint32_t reserved;  /* 0 */
  void* stream;       /* SHUNT_CALL_STREAM */
} shunt_call;

/* `call` may be NULL everywhere. */
SHUNT_API int shunt_all_reduce(shunt_comm* comm, const void* in, void* out, uint64_t count,
                               shunt_dtype dtype, shunt_redop redop, const shunt_call* call,
                               shunt_op** op);
/* `out` is used at the root only. */
SHUNT_API int shunt_reduce(shunt_comm* comm, const void* in, void* out, uint64_t count,
                           shunt_dtype dtype, shunt_redop redop, int32_t root,
                           const shunt_call* call, shunt_op** op);
/* `in` is used at the root only; at the root out may equal in. */
SHUNT_API int shunt_broadcast(shunt_comm* comm, const void* in, void* out, uint64_t count,
                              shunt_dtype dtype, int32_t root, const shunt_call* call,
                              shunt_op** op);
/* in: count; out: world_size * count. */
SHUNT_API int shunt_all_gather(shunt_comm* comm, const void* in, void* out, uint64_t count,
                               shunt_dtype dtype, const shunt_call* call, shunt_op** op);
/* in: world_size * count; out: count. */
SHUNT_API int shunt_reduce_scatter(shunt_comm* comm, const void* in, void* out, uint64_t count,
                                   shunt_dtype dtype, shunt_redop redop, const shunt_call* call,
                                   shunt_op** op);
/* in, out: world_size * count; block i goes to rank i. */
SHUNT_API int shunt_all_to_all(shunt_comm* comm, const void* in, void* out, uint64_t count,
                               shunt_dtype dtype, const shunt_call* call, shunt_op** op);
/* Counts and displacements in elements, world_size entries each; what rank i sends to j must be
 * what j receives from i, else the operation ends with FAILED_PRECONDITION on all ranks. */
SHUNT_API int shunt_all_to_all_v(shunt_comm* comm, const void* in, const uint64_t* send_counts,
                                 const uint64_t* send_displs, void* out,
                                 const uint64_t* recv_counts, const uint64_t* recv_displs,
                                 shunt_dtype dtype, const shunt_call* call, shunt_op** op);
/* in: count; out at the root: world_size * count. */
SHUNT_API int shunt_gather(shunt_comm* comm, const void* in, void* out, uint64_t count,
                           shunt_dtype dtype, int32_t root, const shunt_call* call, shunt_op** op);
/* in at the root: world_size * count; out: count. */
SHUNT_API int shunt_scatter(shunt_comm* comm, const void* in, void* out, uint64_t count,
                            shunt_dtype dtype, int32_t root, const shunt_call* call, shunt_op** op);
/* A send is done when its receive has the data. Sends and receives between two ranks match in
 * order. */
SHUNT_API int shunt_send(shunt_comm* comm, const void* in, uint64_t count, shunt_dtype dtype,
                         int32_t peer, const shunt_call* call, shunt_op** op);
SHUNT_API int shunt_recv(shunt_comm* comm, void* out, uint64_t count, shunt_dtype dtype,
                         int32_t peer, const shunt_call* call, shunt_op** op);
SHUNT_API int shunt_barrier(shunt_comm* comm, const shunt_call* call, shunt_op** op);

/* Waits until all calls on streams that were made on `comm` have ended, and returns the first
 * failure. */
SHUNT_API int shunt_sync(shunt_comm* comm, int64_t timeout_ns);

/* Calls of this thread on `comm` between begin and end are collected and submitted as one; their
 * `op` must be NULL. End blocks for all of them, or gives one handle for all. */
SHUNT_API int shunt_group_begin(shunt_comm* comm);
SHUNT_API int shunt_group_end(shunt_comm* comm, shunt_op** op);

/* ---- Handles
 * ---------------------------------------------------------------------------------------*/

/* *done = 1 when it has ended; the return value is then the operation's outcome. Never blocks. */
SHUNT_API int shunt_op_poll(shunt_op* op, int* done);
/* Blocks until the operation has ended and returns its outcome. A timeout here gives
 * DEADLINE_EXCEEDED and leaves the operation running; the operation's own deadline ends it. */
SHUNT_API int shunt_op_wait(shunt_op* op, int64_t timeout_ns);
/* A descriptor that becomes readable when the operation has ended. Owned by the handle. A group's
 * becomes readable for each of its calls: shunt_op_poll tells whether all have ended, and arms it
 * for the next. Operations on memory outside regions make progress only in poll and wait, so they
 * have none: FAILED_PRECONDITION. */
SHUNT_API int shunt_op_fd(shunt_op* op, int* fd);
/* Frees the handle. An operation that has not ended is waited for first. NULL is allowed. */
SHUNT_API void shunt_op_release(shunt_op* op);

/* ---- Transfers ----------------------------------------------------------------------------------
 *
 * A session takes a name and is an agent. An agent publishes sections: named sets of pieces of its
 * regions. Another agent, or any session, fetches a section, and pulls pieces of it into its own
 * memory, or pushes into them; the daemons move the bytes. Memory that transfers name is from
 * shunt_alloc. docs/transfers.md has an example.
 *
 * What a list, a selection or a notification is made from belongs to the caller again when the call
 * returns. The memory that a transfer reads or writes belongs to it until it has ended.
 */

typedef struct shunt_file shunt_file;         /* a file or an object: see Files and objects */
typedef struct shunt_list shunt_list;         /* pieces that transfers name: see below */
typedef struct shunt_transfer shunt_transfer; /* one in flight */

/* Gives the session a name, 1 to 255 printable bytes without "/" and "@", by which others find it
 * until the session ends. `incarnation` (may be NULL) is a random number: lists that were fetched
 * from an earlier agent of this name are refused. ALREADY_EXISTS: another session of this user has
 * the name, or this one has another. */
SHUNT_API int shunt_agent_register(shunt_session* session, const char* name, uint64_t* incarnation);

typedef struct shunt_dimension {
  uint64_t count;
  int64_t stride_bytes; /* from one piece to the next; not negative */
} shunt_dimension;

/* Pieces of `bytes` bytes each; the first lies at `pointer`. With d dimensions there are
 * dims[0].count * ... * dims[d - 1].count of them, the last dimension running fastest; without any,
 * it is one. Strides nest: each is at least as long as what the smaller ones span. With a file
 * the first lies at `offset` in it, and `pointer` is NULL. */
typedef struct shunt_set {
  const void* pointer;
  uint64_t bytes;
  uint32_t dimensions; /* 0 to 3 */
  uint32_t reserved;   /* 0 */
  shunt_dimension dims[3];
  shunt_file* file; /* NULL: memory */
  uint64_t offset;  /* without a file 0 */
} shunt_set;

typedef int32_t shunt_access; /* shunt_access_value */
enum shunt_access_value {
  SHUNT_ACCESS_DEFAULT = 0, /* what the call's place says */
  SHUNT_ACCESS_READ = 1,    /* others may pull */
  SHUNT_ACCESS_WRITE = 2,   /* others may push */
  SHUNT_ACCESS_READ_WRITE = 3
};

typedef struct shunt_publish_options {
  size_t struct_size;
  shunt_access access; /* default: SHUNT_ACCESS_READ_WRITE */
  uint32_t tenant_count;
  const uint32_t* tenants; /* user ids beside one's own that have this access */
} shunt_publish_options;

/* Publishes sets (1 to 1024) under a name of 1 to 255 bytes, or others in their place: lists that
 * were fetched before are then refused with FAILED_PRECONDITION. `list`, which may be NULL, is the
 * same pieces for transfers of one's own; it ends with the section. Pieces are numbered through all
 * sets. FAILED_PRECONDITION: the session is no agent. INVALID_ARGUMENT and OUT_OF_RANGE name the
 * set that is wrong. */
SHUNT_API int shunt_section_publish(shunt_session* session, const char* name, const shunt_set* sets,
                                    uint64_t count, const shunt_publish_options* options,
                                    shunt_list** list);
/* NOT_FOUND if there is none by that name. */
SHUNT_API int shunt_section_withdraw(shunt_session* session, const char* name);
/* Another agent's section: "agent@node", or "agent": this node's, or else the first other node's,
 * by name, that has one. `access` is what it is wanted for (default: SHUNT_ACCESS_READ). NOT_FOUND:
 * no such agent or section, or it may not be seen; PERMISSION_DENIED: it may not be used so;
 * UNAVAILABLE, DEADLINE_EXCEEDED: its node cannot be reached, or does not answer. */
SHUNT_API int shunt_section_fetch(shunt_session* session, const char* agent, const char* section,
                                  shunt_access access, shunt_list** list);
/* A list of one's own memory or files: checked once, for any number of transfers. */
SHUNT_API int shunt_list_prepare(shunt_session* session, const shunt_set* sets, uint64_t count,
                                 shunt_list** list);

typedef struct shunt_list_facts {
  size_t struct_size; /* set by the caller */
  uint64_t pieces;
  uint64_t piece_bytes; /* what all pieces have; 0 if they differ */
  uint64_t bytes;       /* of all pieces */
  uint64_t version;     /* of the section; 0: of no section */
  uint64_t incarnation; /* of a fetched section's agent; else 0 */
  const char* node;     /* of a fetched section's agent, "": this one; valid as long as the list */
} shunt_list_facts;

/* Fills what `facts->struct_size` has room for. Asks nobody. */
SHUNT_API int shunt_list_info(const shunt_list* list, shunt_list_facts* facts);
/* Frees the handle. Transfers in flight keep what they use. NULL is allowed. */
SHUNT_API void shunt_list_release(shunt_list* list);

typedef int32_t shunt_form; /* shunt_form_value: what a selection's array holds */
enum shunt_form_value {
  SHUNT_FORM_ALL = 0,    /* no array: all pieces of the list, in order */
  SHUNT_FORM_RUNS = 1,   /* shunt_run */
  SHUNT_FORM_IDS32 = 2,  /* uint32_t */
  SHUNT_FORM_IDS64 = 3,  /* uint64_t */
  SHUNT_FORM_PIECES = 4, /* shunt_piece: places in regions of the list */
  SHUNT_FORM_POINTERS =
      5, /* shunt_span: places in this session's memory, where the list is its own */
};

/* Pieces first, first + step, ... of a list. */
typedef struct shunt_run {
  uint64_t first;
  uint64_t count;
  uint64_t step; /* 0 is taken as 1 */
} shunt_run;

typedef struct shunt_piece {
  uint64_t region_id; /* as shunt_region_id or shunt_file_info say where it is one's own */
  uint64_t offset_bytes;
  uint64_t bytes;
} shunt_piece;

typedef struct shunt_span {
  const void* pointer;
  uint64_t bytes;
} shunt_span;

/* One side of a transfer: pieces of a list, in the order in which their bytes are the payload. The
 * sides may be cut differently, as long as both have equally many bytes. */
typedef struct shunt_selection {
  size_t struct_size;
  const shunt_list* list;
  shunt_form form;
  uint32_t reserved; /* 0 */
  const void* data;  /* `count` elements, 1 to 2^24 */
  uint64_t count;
  /* Ids only. Id i names the `unit` pieces from i * unit on. All ids are walked `repeats` times,
   * the next time with repeat_step added to each: the same blocks of every layer need be named
   * once. */
  uint64_t unit;    /* 0 is taken as 1 */
  uint64_t repeats; /* 0 is taken as 1 */
  uint64_t repeat_step;
} shunt_selection;

typedef int32_t shunt_direction; /* shunt_direction_value */
enum shunt_direction_value {
  SHUNT_PULL = 0, /* from the remote side into the local one */
  SHUNT_PUSH = 1
};

typedef int32_t shunt_priority; /* shunt_priority_value: whose bytes go first */
enum shunt_priority_value {
  SHUNT_PRIORITY_BULK = 0,
  SHUNT_PRIORITY_LATENCY = 1,
  SHUNT_PRIORITY_BACKGROUND = 2
};

typedef struct shunt_transfer_options {
  size_t struct_size;
  int64_t timeout_ns; /* 0: 60 s; SHUNT_FOREVER: none. When it passes the transfer ends with
                         DEADLINE_EXCEEDED, and the destination holds any part of it */
  shunt_priority priority;
  uint32_t reserved;           /* 0 */
  const void* notification;    /* NULL: none. To the agent that published `remote`, exactly once,
                                  when the last byte is there */
  uint64_t notification_bytes; /* at most 1024; may be 0 */
} shunt_transfer_options;

/* Begins a transfer between the session's own pieces and those of a fetched section, or again of
 * its own memory. Returns when it is posted, without waiting for the daemon. `options` may be NULL.
 * INVALID_ARGUMENT: an array that is null or empty, a span outside regions. RESOURCE_EXHAUSTED: too
 * many are in flight. All else that can be wrong is the transfer's outcome: INVALID_ARGUMENT (sides
 * of different lengths, pieces of the destination that overlap), OUT_OF_RANGE (a piece that the
 * list does not have), NOT_FOUND (a list or region that is gone), FAILED_PRECONDITION (the section
 * has changed since it was fetched, or its agent is another one), PERMISSION_DENIED,
 * RESOURCE_EXHAUSTED (too many notifications wait at the receiver), DEADLINE_EXCEEDED, CANCELLED,
 * UNAVAILABLE (an agent or a daemon is gone). */
SHUNT_API int shunt_transfer_post(shunt_session* session, shunt_direction direction,
                                  const shunt_selection* local, const shunt_selection* remote,
                                  const shunt_transfer_options* options, shunt_transfer** transfer);
/* Several threads may wait for one transfer, or for several; none may release it meanwhile. */
/* *done = 1 when it has ended; the return value is then its outcome. Does not wait for it. */
SHUNT_API int shunt_transfer_poll(shunt_transfer* transfer, int* done);
/* Blocks until it has ended and returns its outcome. A timeout here (0: 60 s) gives
 * DEADLINE_EXCEEDED and leaves it running. */
SHUNT_API int shunt_transfer_wait(shunt_transfer* transfer, int64_t timeout_ns);
/* A descriptor that becomes readable when it has ended. Owned by the handle. */
SHUNT_API int shunt_transfer_fd(shunt_transfer* transfer, int* fd);
/* Has it end soon, with CANCELLED unless all has been moved. Does not wait for the end. */
SHUNT_API int shunt_transfer_cancel(shunt_transfer* transfer);

typedef struct shunt_report {
  size_t struct_size; /* set by the caller */
  uint64_t bytes;
  uint64_t waited_ns; /* until the first byte was moved */
  uint64_t moved_ns;  /* from there to the end */
  char route[16];     /* "copy": within this node; "pull", "push": between nodes; "read", "write":
                         of files and objects; "gpu": with GPU memory on a side */
} shunt_report;

/* Of a transfer that has ended well; FAILED_PRECONDITION before its end, its outcome if that is a
 * failure. Asks the daemon once. */
SHUNT_API int shunt_transfer_report(shunt_transfer* transfer, shunt_report* report);
/* Frees the handle. A transfer that has not ended is waited for first. NULL is allowed. */
SHUNT_API void shunt_transfer_release(shunt_transfer* transfer);

typedef struct shunt_explanation {
  size_t struct_size; /* set by the caller */
  uint64_t bytes;
  uint64_t copy_runs;    /* copies after cutting at both sides' borders, or messages */
  uint64_t predicted_ns; /* if nothing else ran; 0: nothing like it has been seen */
  uint64_t bytes_ahead;  /* of others in its class or a better one */
  char route[16];        /* as in shunt_report */
} shunt_explanation;

/* What shunt_transfer_post would do; nothing is begun. Errors are those of the transfer's outcome.
 * RESOURCE_EXHAUSTED if the selections are too long for one request (some thousand ids). */
SHUNT_API int shunt_transfer_explain(shunt_session* session, shunt_direction direction,
                                     const shunt_selection* local, const shunt_selection* remote,
                                     const shunt_transfer_options* options,
                                     shunt_explanation* explanation);

/* ---- Files and objects --------------------------------------------------------------------------
 *
 * What is opened or created here can be named in sets (shunt_set.file) as memory can: a list or a
 * section is of memory alone, or of files and objects alone, and a transfer has memory on one side.
 * Either may be the `local` side, and the other a list of one's own. The daemon reads and writes;
 * others may fetch such a section on the same node. docs/transfers.md says what fails with which
 * code.
 *
 * `timeout_ns` of 0 is 60 s: DEADLINE_EXCEEDED.
 */

/* A regular file that this process has opened: the daemon gets a descriptor of its own, and `fd`
 * stays the caller's. `access`: SHUNT_ACCESS_READ (default) or SHUNT_ACCESS_READ_WRITE, for which
 * `fd` must be open too. Writes are in place, never beyond the end that it has now. */
SHUNT_API int shunt_file_open_fd(shunt_session* session, int fd, shunt_access access,
                                 int64_t timeout_ns, shunt_file** file);
/* By a path below a root of the daemon's configuration, without links on the way. */
SHUNT_API int shunt_file_open(shunt_session* session, const char* root, const char* path,
                              shunt_access access, int64_t timeout_ns, shunt_file** file);

typedef enum shunt_create_flag {
  /* ALREADY_EXISTS, at once or of the commit, if there is one by that name. Otherwise it is
   * replaced. */
  SHUNT_CREATE_IF_ABSENT = 1
} shunt_create_flag;

typedef struct shunt_create_options {
  size_t struct_size;
  int64_t timeout_ns; /* for the creation itself */
  uint32_t flags;     /* shunt_create_flag, or 0 */
  uint32_t reserved;  /* 0 */
} shunt_create_options;

/* A draft of a file of `bytes` bytes: transfers write each of them once, in any order, then
 * shunt_file_commit makes it appear whole. Until then nothing is to be seen of it, and if it is
 * closed, or its session ends, nothing ever is. `options` may be NULL. */
SHUNT_API int shunt_file_create(shunt_session* session, const char* root, const char* path,
                                uint64_t bytes, const shunt_create_options* options,
                                shunt_file** file);

typedef struct shunt_object {
  size_t struct_size;
  const char* endpoint; /* a name of the daemon's configuration */
  const char* bucket;
  const char* key;
  const char* access_key_id; /* what signs requests, kept by the session alone; NULL: unsigned */
  const char* secret_access_key;
  const char* session_token; /* of keys that expire; else NULL */
} shunt_object;

/* An object, for reading. UNAVAILABLE: its endpoint does not answer. UNAUTHENTICATED: it does not
 * know the keys. */
SHUNT_API int shunt_object_open(shunt_session* session, const shunt_object* object,
                                int64_t timeout_ns, shunt_file** file);
/* A draft, as shunt_file_create. */
SHUNT_API int shunt_object_create(shunt_session* session, const shunt_object* object,
                                  uint64_t bytes, const shunt_create_options* options,
                                  shunt_file** file);

typedef struct shunt_file_facts {
  size_t struct_size; /* set by the caller */
  uint64_t bytes;     /* when it was opened; of a draft, what it will have */
  uint64_t region_id; /* for shunt_piece */
} shunt_file_facts;

SHUNT_API int shunt_file_info(const shunt_file* file, shunt_file_facts* facts);
/* Makes durable what transfers that have ended have written in place. */
SHUNT_API int shunt_file_sync(shunt_file* file, int64_t timeout_ns);
/* Makes a draft appear, durable. FAILED_PRECONDITION: a transfer uses it, and it stays a draft; or
 * bytes are missing. But for the first, it is no draft any more after a failure, and what was there
 * before is there (UNKNOWN and DEADLINE_EXCEEDED: or it is the new one). */
SHUNT_API int shunt_file_commit(shunt_file* file, int64_t timeout_ns);
/* Closes it now: lists name nothing any more. FAILED_PRECONDITION names a transfer in flight that
 * uses it, and it stays open; but a draft is aborted, with the transfers that write into it. Does
 * nothing to one that is closed or committed. The handle is still the caller's to release. */
SHUNT_API int shunt_file_close(shunt_file* file);
/* Frees the handle. A file that is not closed is closed, and a draft aborted, once no list names it
 * any more. A section alone keeps nothing open: the list that its publication gave does. NULL is
 * allowed. */
SHUNT_API void shunt_file_release(shunt_file* file);

/* ---- Notifications ----------------------------------------------------------------------------
 */

/* A notification alone, of at most 1024 bytes, to an agent ("agent" or "agent@node").
 * RESOURCE_EXHAUSTED: too many wait there. */
SHUNT_API int shunt_notify(shunt_session* session, const char* agent, const void* payload,
                           uint64_t bytes);

typedef struct shunt_notification {
  const char* from; /* the agent that sent it, "agent@node" if on another one; "" or "@node": a
                       session without a name */
  const void* payload;
  uint64_t bytes;
} shunt_notification;

typedef struct shunt_notifications {
  uint64_t count;
  const shunt_notification* items;
  int32_t more; /* 1: others have come */
} shunt_notifications;

/* What has come for this session's agent, oldest first, each exactly once; at most `max` (0: as
 * many as fit into an answer). With none there it waits for the first, `timeout_ns` at most (0: not
 * at all); a timeout gives a count of 0. Freed by shunt_notifications_release. */
SHUNT_API int shunt_notifications_take(shunt_session* session, uint32_t max, int64_t timeout_ns,
                                       shunt_notifications** notifications);
SHUNT_API void shunt_notifications_release(shunt_notifications* notifications);
/* A descriptor that becomes readable when notifications may have come; shunt_notifications_take
 * takes it back. Owned by the session. */
SHUNT_API int shunt_notifications_fd(shunt_session* session, int* fd);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHUNT_H_ */
