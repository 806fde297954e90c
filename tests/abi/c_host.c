/* A C program over shunt.h: what can be checked without a daemon. */
#include <stdio.h>
#include <string.h>

#include "shunt.h"

#define REQUIRE(condition)                                             \
  do {                                                                 \
    if (!(condition)) {                                                \
      fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      return 1;                                                        \
    }                                                                  \
  } while (0)

int main(void) {
  shunt_open_options options;
  shunt_session* session = NULL;

  REQUIRE(strchr(shunt_version(), '.') != NULL);
  REQUIRE(strcmp(shunt_code_name(SHUNT_INVALID_ARGUMENT), "INVALID_ARGUMENT") == 0);
  REQUIRE(shunt_code_name(12345) != NULL);

  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.socket = "/nonexistent/shuntd.sock";
  REQUIRE(shunt_open(&options, &session) == SHUNT_UNAVAILABLE);
  REQUIRE(session == NULL);
  REQUIRE(strstr(shunt_last_error(), options.socket) != NULL);
  REQUIRE(shunt_open(NULL, NULL) == SHUNT_INVALID_ARGUMENT);

  shunt_close(NULL);
  shunt_op_release(NULL);
  return 0;
}
