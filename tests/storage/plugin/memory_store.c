/* A store plugin that keeps objects in memory: an example, and what the conformance suite runs
 * over. It does all its work in poll, one operation after the other. The object ".names" lists what
 * there is, one name a line, drafts too. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <store_plugin.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Bytes, shared by the object of a name and by all who have it open. */
struct content {
  int users;
  uint64_t bytes;
  unsigned char* data;
};

struct object {
  struct object* next;
  char* name;
  struct content* content;
};

struct handle {
  struct handle* next;
  uint64_t id;
  char* name;
  struct content* content;
  int writable;
  /* Of a draft: which bytes were written, each once. */
  unsigned char* written;
  uint64_t written_bytes;
  int if_absent, broken;
};

enum kind { OPEN, READ, WRITE, SYNC, BEGIN, COMMIT, ABORT, CLOSE };

struct operation {
  struct operation* next;
  enum kind kind;
  uint64_t token;
  int64_t deadline_ns;
  int cancelled;
  char* name;
  char* container;
  uint32_t access, if_absent;
  uint64_t bytes, id;
  shunt_store_piece* pieces;
  uint64_t count;
};

struct store {
  int fd;
  uint64_t next_id;
  struct object* objects;
  struct handle* handles;
  struct operation *first, **last;
};

static void* must(void* memory) {
  if (memory == NULL) abort();
  return memory;
}
static char* copy_of(const char* text) { return must(strdup(text)); }

static void drop(struct content* content) {
  if (--content->users > 0) return;
  free(content->data);
  free(content);
}

static struct content* new_content(uint64_t bytes) {
  struct content* content = calloc(1, sizeof(*content));
  if (content == NULL) return NULL;
  content->users = 1;
  content->bytes = bytes;
  content->data = calloc(1, bytes + 1);
  if (content->data != NULL) return content;
  free(content);
  return NULL;
}

static void fail(shunt_store_completion* out, uint32_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out->words, sizeof(out->words), format, arguments);
  va_end(arguments);
  out->code = code;
  out->bytes = 0;
}

static struct handle** find(struct store* store, uint64_t id) {
  struct handle** at = &store->handles;
  while (*at != NULL && (*at)->id != id) at = &(*at)->next;
  return at;
}

static void remove_handle(struct store* store, uint64_t id) {
  struct handle** at = find(store, id);
  struct handle* gone = *at;
  *at = gone->next;
  drop(gone->content);
  free(gone->written);
  free(gone->name);
  free(gone);
}

static struct handle* add_handle(struct store* store, const char* name, struct content* content) {
  struct handle* handle = must(calloc(1, sizeof(*handle)));
  handle->id = ++store->next_id;
  handle->name = copy_of(name);
  handle->content = content;
  handle->next = store->handles;
  store->handles = handle;
  return handle;
}

static struct object* find_object(struct store* store, const char* name) {
  struct object* object = store->objects;
  while (object != NULL && strcmp(object->name, name) != 0) object = object->next;
  return object;
}

static struct content* list_names(struct store* store) {
  size_t bytes = 0;
  for (struct object* o = store->objects; o != NULL; o = o->next) bytes += strlen(o->name) + 1;
  for (struct handle* h = store->handles; h != NULL; h = h->next) bytes += strlen(h->name) + 10;
  struct content* content = must(new_content(bytes + 1));
  char* at = (char*)content->data;
  for (struct object* o = store->objects; o != NULL; o = o->next) {
    at += sprintf(at, "%s\n", o->name);
  }
  for (struct handle* h = store->handles; h != NULL; h = h->next) {
    if (h->written != NULL) at += sprintf(at, "draft of %s\n", h->name);
  }
  content->bytes = (uint64_t)(at - (char*)content->data);
  return content;
}

static int wrong_container(struct operation* op, shunt_store_completion* out) {
  if (strcmp(op->container, "memory") == 0) return 0;
  fail(out, SHUNT_STORE_NOT_FOUND, "container '%s', expected 'memory'", op->container);
  return 1;
}

static void run_open(struct store* store, struct operation* op, shunt_store_completion* out) {
  if (wrong_container(op, out)) return;
  struct content* content;
  if (strcmp(op->name, ".names") == 0) {
    content = list_names(store);
  } else {
    struct object* object = find_object(store, op->name);
    if (object == NULL) {
      fail(out, SHUNT_STORE_NOT_FOUND, "%s: no such object, expected one", op->name);
      return;
    }
    content = object->content;
    ++content->users;
  }
  struct handle* handle = add_handle(store, op->name, content);
  handle->writable = op->access == SHUNT_STORE_READ_WRITE;
  out->object = handle->id;
  out->bytes = content->bytes;
}

static void run_begin(struct store* store, struct operation* op, shunt_store_completion* out) {
  if (wrong_container(op, out)) return;
  struct content* content = op->bytes < UINT64_C(1) << 40 ? new_content(op->bytes) : NULL;
  unsigned char* written = content == NULL ? NULL : calloc(1, op->bytes + 1);
  if (written == NULL) {
    if (content != NULL) drop(content);
    fail(out, SHUNT_STORE_RESOURCE_EXHAUSTED, "%s: no memory for %" PRIu64 " bytes", op->name,
         op->bytes);
    return;
  }
  struct handle* handle = add_handle(store, op->name, content);
  handle->writable = 1;
  handle->written = written;
  handle->if_absent = (int)op->if_absent;
  out->object = handle->id;
}

/* All pieces are checked before any moves. */
static int check_piece(struct store* store, struct operation* op, const shunt_store_piece* piece,
                       shunt_store_completion* out) {
  struct handle* handle = *find(store, piece->object);
  if (handle == NULL) {
    fail(out, SHUNT_STORE_NOT_FOUND, "object %" PRIu64 " is not open, expected an open one",
         piece->object);
    return 0;
  }
  if (op->kind == WRITE ? !handle->writable : handle->written != NULL) {
    fail(out, SHUNT_STORE_PERMISSION_DENIED, "%s was not opened for that", handle->name);
    return 0;
  }
  const uint64_t size = handle->content->bytes;
  if (piece->offset > size || piece->bytes > size - piece->offset) {
    fail(out, SHUNT_STORE_OUT_OF_RANGE,
         "%s: %" PRIu64 " bytes at offset %" PRIu64
         " reach beyond its end, expected at most "
         "%" PRIu64 " bytes",
         handle->name, piece->bytes, piece->offset, size);
    return 0;
  }
  if (op->kind == WRITE && handle->written != NULL) {
    if (memchr(handle->written + piece->offset, 1, piece->bytes) != NULL) {
      fail(out, SHUNT_STORE_INVALID_ARGUMENT,
           "%s: some of %" PRIu64 " bytes at offset %" PRIu64
           " were written before, expected each byte once",
           handle->name, piece->bytes, piece->offset);
      return 0;
    }
    memset(handle->written + piece->offset, 1, piece->bytes);
    handle->written_bytes += piece->bytes;
  }
  return 1;
}

/* After a write that failed: bytes may be noted that never came. */
static void break_drafts(struct store* store, struct operation* op) {
  for (uint64_t i = 0; op->kind == WRITE && i < op->count; ++i) {
    struct handle* handle = *find(store, op->pieces[i].object);
    if (handle != NULL) handle->broken = 1;
  }
}

static void run_transfer(struct store* store, struct operation* op, shunt_store_completion* out) {
  for (uint64_t i = 0; i < op->count; ++i) {
    if (!check_piece(store, op, &op->pieces[i], out)) {
      break_drafts(store, op);
      return;
    }
  }
  for (uint64_t i = 0; i < op->count; ++i) {
    const shunt_store_piece* piece = &op->pieces[i];
    unsigned char* data = (*find(store, piece->object))->content->data + piece->offset;
    if (piece->bytes == 0) continue;
    if (op->kind == WRITE) {
      memcpy(data, piece->memory, piece->bytes);
    } else {
      memcpy(piece->memory, data, piece->bytes);
    }
    out->bytes += piece->bytes;
  }
}

/* The handle of an operation on one; null, and an error, if it is not of that kind. */
static struct handle* take(struct store* store, struct operation* op, int draft,
                           shunt_store_completion* out) {
  struct handle* handle = *find(store, op->id);
  const char* expected = draft ? "a draft" : "an open object";
  if (handle == NULL) {
    fail(out, SHUNT_STORE_NOT_FOUND, "object %" PRIu64 " is not open, expected %s", op->id,
         expected);
    return NULL;
  }
  if ((handle->written != NULL) == draft) return handle;
  fail(out, SHUNT_STORE_INVALID_ARGUMENT, "%s is not %s", handle->name, expected);
  return NULL;
}

static void run_commit(struct store* store, struct operation* op, shunt_store_completion* out) {
  struct handle* draft = take(store, op, 1, out);
  if (draft == NULL) return;
  struct object* object = find_object(store, draft->name);
  if (draft->broken) {
    fail(out, SHUNT_STORE_FAILED_PRECONDITION, "%s: a write failed, expected none", draft->name);
  } else if (draft->written_bytes != draft->content->bytes) {
    fail(out, SHUNT_STORE_FAILED_PRECONDITION,
         "%s: %" PRIu64 " bytes were written, expected %" PRIu64, draft->name, draft->written_bytes,
         draft->content->bytes);
  } else if (object != NULL && draft->if_absent) {
    fail(out, SHUNT_STORE_ALREADY_EXISTS, "%s exists, expected no object", draft->name);
  } else {
    if (object == NULL) {
      object = must(calloc(1, sizeof(*object)));
      object->name = copy_of(draft->name);
      object->next = store->objects;
      store->objects = object;
    } else {
      drop(object->content);
    }
    object->content = draft->content;
    ++object->content->users;
    out->bytes = object->content->bytes;
  }
  remove_handle(store, op->id);
}

static void run(struct store* store, struct operation* op, shunt_store_completion* out) {
  switch (op->kind) {
    case OPEN:
      run_open(store, op, out);
      break;
    case BEGIN:
      run_begin(store, op, out);
      break;
    case READ:
    case WRITE:
      run_transfer(store, op, out);
      break;
    case SYNC:
      take(store, op, 0, out);
      break;
    case COMMIT:
      run_commit(store, op, out);
      break;
    case ABORT:
      if (take(store, op, 1, out) != NULL) remove_handle(store, op->id);
      break;
    case CLOSE:
      break;
  }
}

/* Posting. */

static struct operation* post(struct store* store, enum kind kind, int64_t deadline_ns,
                              uint64_t token) {
  struct operation* op = must(calloc(1, sizeof(*op)));
  op->kind = kind;
  op->token = token;
  op->deadline_ns = deadline_ns;
  *store->last = op;
  store->last = &op->next;
  return op;
}

static void post_open(void* store, const shunt_store_open* request, uint64_t token) {
  struct operation* op = post(store, OPEN, request->deadline_ns, token);
  op->container = copy_of(request->container);
  op->name = copy_of(request->name);
  op->access = request->access;
}

static void post_begin(void* store, const shunt_store_begin* request, uint64_t token) {
  struct operation* op = post(store, BEGIN, request->deadline_ns, token);
  op->container = copy_of(request->container);
  op->name = copy_of(request->name);
  op->bytes = request->bytes;
  op->if_absent = request->if_absent;
}

static void post_transfer(struct store* store, enum kind kind, const shunt_store_transfer* request,
                          uint64_t token) {
  struct operation* op = post(store, kind, request->deadline_ns, token);
  op->count = request->count;
  op->pieces = must(calloc(request->count + 1, sizeof(*op->pieces)));
  if (request->count > 0) {
    memcpy(op->pieces, request->pieces, request->count * sizeof(*op->pieces));
  }
}
static void post_read(void* store, const shunt_store_transfer* request, uint64_t token) {
  post_transfer(store, READ, request, token);
}
static void post_write(void* store, const shunt_store_transfer* request, uint64_t token) {
  post_transfer(store, WRITE, request, token);
}

static void post_on(void* store, enum kind kind, uint64_t id, int64_t deadline_ns, uint64_t token) {
  post(store, kind, deadline_ns, token)->id = id;
}
static void post_sync(void* store, uint64_t id, int64_t deadline_ns, uint64_t token) {
  post_on(store, SYNC, id, deadline_ns, token);
}
static void post_commit(void* store, uint64_t id, int64_t deadline_ns, uint64_t token) {
  post_on(store, COMMIT, id, deadline_ns, token);
}
static void post_abort(void* store, uint64_t id, uint64_t token) {
  post_on(store, ABORT, id, INT64_MAX, token);
}

/* What was posted before comes first. */
static void close_handle(void* store, uint64_t id) { post_on(store, CLOSE, id, INT64_MAX, 0); }

static void cancel(void* opaque, uint64_t token) {
  struct store* store = opaque;
  for (struct operation* op = store->first; op != NULL; op = op->next) {
    if (op->token == token && op->kind != ABORT && op->kind != CLOSE) op->cancelled = 1;
  }
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void free_operation(struct operation* op) {
  free(op->name);
  free(op->container);
  free(op->pieces);
  free(op);
}

static size_t poll_store(void* opaque, shunt_store_completion* out, size_t count) {
  struct store* store = opaque;
  size_t done = 0;
  while (store->first != NULL && done < count) {
    struct operation* op = store->first;
    store->first = op->next;
    if (store->first == NULL) store->last = &store->first;
    if (op->kind == CLOSE) {
      if (*find(store, op->id) != NULL) remove_handle(store, op->id);
      free_operation(op);
      continue;
    }
    shunt_store_completion* one = &out[done++];
    memset(one, 0, sizeof(*one));
    one->token = op->token;
    const int late = op->deadline_ns <= now_ns();
    if (op->cancelled || late) {
      fail(one, op->cancelled ? SHUNT_STORE_CANCELLED : SHUNT_STORE_DEADLINE_EXCEEDED,
           op->cancelled ? "cancelled" : "its deadline passed before it began");
      break_drafts(store, op);
      if (op->kind == COMMIT && *find(store, op->id) != NULL) remove_handle(store, op->id);
    } else {
      run(store, op, one);
    }
    free_operation(op);
  }
  return done;
}

static int store_fd(void* opaque) { return ((struct store*)opaque)->fd; }

static uint32_t create(const char* config, void** out, char* words, size_t words_bytes) {
  if (strcmp(config, "") != 0) {
    snprintf(words, words_bytes, "configuration '%s', expected none", config);
    return SHUNT_STORE_INVALID_ARGUMENT;
  }
  struct store* store = must(calloc(1, sizeof(*store)));
  store->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  store->last = &store->first;
  *out = store;
  return SHUNT_STORE_OK;
}

static void destroy(void* opaque) {
  struct store* store = opaque;
  while (store->first != NULL) {
    struct operation* op = store->first;
    store->first = op->next;
    free_operation(op);
  }
  while (store->handles != NULL) remove_handle(store, store->handles->id);
  while (store->objects != NULL) {
    struct object* object = store->objects;
    store->objects = object->next;
    drop(object->content);
    free(object->name);
    free(object);
  }
  close(store->fd);
  free(store);
}

static const shunt_store_plugin table = {
    .size = sizeof(table),
    .version = SHUNT_STORE_PLUGIN_VERSION,
    .name = "memory",
    .features = SHUNT_STORE_IN_PLACE,
    .create = create,
    .destroy = destroy,
    .post_open = post_open,
    .post_read = post_read,
    .post_write = post_write,
    .post_sync = post_sync,
    .post_begin = post_begin,
    .post_commit = post_commit,
    .post_abort = post_abort,
    .close = close_handle,
    .cancel = cancel,
    .poll = poll_store,
    .fd = store_fd,
};

const shunt_store_plugin* shunt_store_plugin_table(void) { return &table; }
