/* What the programs in C share: tensors with their numbers, and checks that end the program. */
#ifndef ATLAS_TESTS_ARRAYS_H
#define ATLAS_TESTS_ARRAYS_H

#include "atlas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                                    \
  do {                                                                                                                 \
    if (!(what)) {                                                                                                     \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #what, atlas_last_error());                   \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

typedef struct {
  DLTensor tensor;
  int64_t shape[5];
  float data[256];
} Array;

/* A tensor of numbers that look random; of one number everywhere if `step` is 0. */
static inline void fill(Array *a, float from, float step, int rank, const int64_t *shape) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) a->shape[i] = shape[i], count *= shape[i];
  CHECK(count <= 256);
  for (int i = 0; i < count; i++) a->data[i] = from + step * (float)((i * 37 + 11) % 23);
  DLTensor t = {a->data, {kDLCPU, 0}, rank, {kDLFloat, 32, 1}, a->shape, NULL, 0};
  a->tensor = t;
}

/* Ends the program unless a call failed with this code, and said so. */
static inline void fails(AtlasStatus status, unsigned code, const char *part) {
  if (status != ATLAS_STATUS_ERROR || atlas_last_error_code() != code || !strstr(atlas_last_error(), part)) {
    fprintf(stderr, "not ATL%u with `%s`: %s\n", code, part, atlas_last_error());
    exit(1);
  }
}

#endif
