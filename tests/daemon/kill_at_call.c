/* Preloaded into the daemon: counts the calls that make a draft a file, and dies of SIGKILL at one
 * of them, before or after it is done. KILL_AT: "NUMBER before" or "NUMBER after", from 1 on;
 * KILL_LOG: a file that gets the name of each call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int calls;

static void pass(const char* name, const char* when) {
  if (access(getenv("KILL_ARMED"), F_OK) != 0) return;
  const int number =
      strcmp(when, "before") == 0 ? __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) : calls;
  if (strcmp(when, "before") == 0) {
    FILE* log = fopen(getenv("KILL_LOG"), "a");
    if (log != NULL) {
      fprintf(log, "%s\n", name);
      fclose(log);
    }
  }
  char now[32];
  snprintf(now, sizeof(now), "%d %s", number, when);
  if (strcmp(now, getenv("KILL_AT")) == 0) kill(getpid(), SIGKILL);
}

#define WRAP(name, parameters, arguments)                                     \
  int name parameters {                                                       \
    int(*const real) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
    pass(#name, "before");                                                    \
    const int result = real arguments;                                        \
    pass(#name, "after");                                                     \
    return result;                                                            \
  }

WRAP(fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
WRAP(fallocate64, (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes))
WRAP(fsync, (int fd), (fd))
WRAP(fdatasync, (int fd), (fd))
WRAP(flock, (int fd, int operation), (fd, operation))
WRAP(linkat, (int from, const char* a, int to, const char* b, int flags), (from, a, to, b, flags))
WRAP(renameat2, (int from, const char* a, int to, const char* b, unsigned flags),
     (from, a, to, b, flags))
