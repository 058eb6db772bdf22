/* Trains a linear memory by an Omega rule, forward and back, and reads a stream and packed documents: each beside plain loops, whose
 * gradients are differences. */
#include "arrays.h"

#include <math.h>

enum { N = 7, H = 2, D = 3, E = 4, CHUNK = 3, WINDOW = 2, CHUNKS = (N + CHUNK - 1) / CHUNK, P = CHUNKS * CHUNK };
enum { Q, K, V, RQ, RK, ALPHA, THETA, ETA, GAMMA, W, S, INPUTS };

static const int64_t shapes[INPUTS][4] = {{1, N, H, D}, {1, N, H, D}, {1, N, H, E}, {1, N, H, E}, {1, N, H, E}, {1, N, H},
                                          {1, N, H},    {1, N, H},    {1, N, H, WINDOW}, {1, H, E, D}, {1, H, E, D}};
static const float numbers[INPUTS][2] = {{-1, 0.1f},     {1, -0.09f},   {-0.8f, 0.07f}, {0.5f, -0.02f}, {-0.1f, 0.01f},
                                         {0.9f, 0.004f}, {0.3f, 0.01f}, {0.02f, 0.002f}, {0.1f, 0.03f}, {-0.4f, 0.04f},
                                         {0.2f, -0.02f}};
static Array in[INPUTS], y, dy, last[2];
static const AtlasOmegaTokens tokens = {&in[Q].tensor,     &in[K].tensor,     &in[V].tensor,   &in[RQ].tensor,   &in[RK].tensor,
                                        &in[ALPHA].tensor, &in[THETA].tensor, &in[ETA].tensor, &in[GAMMA].tensor};
static const DLTensor *const memory[2] = {&in[W].tensor, &in[S].tensor};
static const DLTensor *const final[2] = {&last[0].tensor, &last[1].tensor};
static const AtlasOmegaRule rule = {{"linear", "descent", CHUNK, WINDOW, D, E, 0, {kDLFloat, 32, 1}}, "square", 0, 0, 0, 0, 1, H, N};

static int count(int input) { return (int)(shapes[input][1] * shapes[input][2] * (shapes[input][3] ? shapes[input][3] : 1)); }

static void start(void) {
  for (int i = 0; i < INPUTS; i++) fill(&in[i], numbers[i][0], numbers[i][1], shapes[i][3] ? 4 : 3, shapes[i]);
  fill(&y, 77, 0, 4, shapes[V]);
  fill(&dy, 0.6f, -0.05f, 4, shapes[V]);
  fill(&last[0], -0.3f, 0.03f, 4, shapes[W]);
  fill(&last[1], 0.4f, -0.02f, 4, shapes[W]);
}

static double x[INPUTS][128], read_[N * H * E];

static void widen(void) {
  for (int i = 0; i < INPUTS; i++)
    for (int j = 0; j < count(i); j++) x[i][j] = in[i].data[j];
}

/* The rule as it is defined, on the tokens of a document; gradients of a chunk are taken at the memory before it. */
static void define(int begin, int end, double *w, double *s) {
  for (int h = 0; h < H; h++) {
    double before[E][D];
    for (int t = begin; t < end; t++) {
      double step[E][D] = {{0}};
      if ((t - begin) % CHUNK == 0) memcpy(before, w + h * E * D, sizeof before);
      for (int j = 0; j < WINDOW; j++) {
        int i = t - (WINDOW - 1) + j;
        if (i < begin) continue;
        for (int e = 0; e < E; e++) {
          double error = x[RK][(i * H + h) * E + e] - x[V][(i * H + h) * E + e];
          for (int d = 0; d < D; d++) error += before[e][d] * x[K][(i * H + h) * D + d];
          for (int d = 0; d < D; d++) step[e][d] += x[GAMMA][(t * H + h) * WINDOW + j] * 2 * error * x[K][(i * H + h) * D + d];
        }
      }
      int gate = t * H + h;
      for (int e = 0; e < E; e++) {
        double sum = x[RQ][gate * E + e];
        for (int d = 0; d < D; d++) {
          int at = (h * E + e) * D + d;
          s[at] = x[THETA][gate] * s[at] + step[e][d];
          w[at] = x[ALPHA][gate] * w[at] - x[ETA][gate] * s[at];
          sum += w[at] * x[Q][gate * D + d];
        }
        read_[gate * E + e] = sum;
      }
    }
  }
}

static double loss(void) {
  double w[H * E * D], s[H * E * D], sum = 0;
  memcpy(w, x[W], sizeof w), memcpy(s, x[S], sizeof s);
  define(0, N, w, s);
  for (int i = 0; i < N * H * E; i++) sum += read_[i] * dy.data[i];
  for (int i = 0; i < H * E * D; i++) sum += w[i] * last[0].data[i] + s[i] * last[1].data[i];
  return sum;
}

/* How far `y`, and the memory behind so many tokens, are from the definition. `start` has been called since they were written. */
static double off(const Array *got_y, const Array *got_w, const Array *got_s, int trained) {
  double w[H * E * D], s[H * E * D], worst = 0;
  widen();
  memcpy(w, x[W], sizeof w), memcpy(s, x[S], sizeof s);
  define(0, N, w, s);
  for (int i = 0; i < N * H * E; i++) worst = fmax(worst, fabs(read_[i] - got_y->data[i]));
  memcpy(w, x[W], sizeof w), memcpy(s, x[S], sizeof s);
  define(0, trained, w, s);
  for (int i = 0; i < H * E * D; i++) worst = fmax(worst, fmax(fabs(w[i] - got_w->data[i]), fabs(s[i] - got_s->data[i])));
  return worst;
}

static double off_now(int trained) {
  Array got_y = y, got_w = in[W], got_s = in[S];
  start();
  return off(&got_y, &got_w, &got_s, trained);
}

static void training(AtlasDevice *device) {
  AtlasOmegaTraining *of = NULL;
  AtlasOmegaRule wrong = rule;
  wrong.loss = "cubic";
  fails(atlas_omega_training_open(device, &wrong, 0, &of), 696, "square, half_square, mean_square, dot and scaled");
  wrong = rule, wrong.of.step = "muon_by_token";
  fails(atlas_omega_training_open(device, &wrong, 0, &of), 651, "gradients");
  wrong = rule, wrong.before = 2;
  fails(atlas_omega_training_open(device, &wrong, 0, &of), 696, "`before`");
  wrong = rule, wrong.of.dtype.bits = 64;
  fails(atlas_omega_training_open(device, &wrong, 0, &of), 696, "f32, f16 and bf16");
  CHECK(of == NULL);
  CHECK(atlas_omega_training_open(device, &rule, 2, &of) == ATLAS_STATUS_OK);
  CHECK(atlas_omega_training_segments(of) == 2 && atlas_omega_training_bytes(of) > 0);

  Array states[2];
  int64_t kept_shape[5] = {2, 1, H, E, D};
  for (int i = 0; i < 2; i++) fill(&states[i], 77, 0, 5, kept_shape);
  const DLTensor *kept[2] = {&states[0].tensor, &states[1].tensor};

  /* Mistakes: nothing is written. */
  start();
  fails(atlas_omega_training_forward(NULL, NULL, &tokens, NULL, memory, 2, &y.tensor, kept, 2), 696, "training is null");
  fails(atlas_omega_training_forward(of, NULL, NULL, NULL, memory, 2, &y.tensor, kept, 2), 696, "tokens is null");
  fails(atlas_omega_training_forward(of, NULL, &tokens, NULL, memory, 2, &y.tensor, kept, 1), 696, "the memory has 2: w, s");
  fails(atlas_omega_training_forward(of, NULL, &tokens, NULL, memory, 1, &y.tensor, kept, 2), 601, "omega_linear");
  fails(atlas_omega_training_forward(of, NULL, &tokens, &in[W].tensor, memory, 2, &y.tensor, kept, 2), 601, "`norm`");
  AtlasOmegaTokens missing = tokens;
  missing.eta = NULL;
  fails(atlas_omega_training_forward(of, NULL, &missing, NULL, memory, 2, &y.tensor, kept, 2), 696, "`eta` is null");
  states[1].shape[0] = 3;
  fails(atlas_omega_training_forward(of, NULL, &tokens, NULL, memory, 2, &y.tensor, kept, 2), 604, "`s`");
  states[1].shape[0] = 2;
  const DLTensor *alike[2] = {kept[0], kept[0]};
  fails(atlas_omega_training_forward(of, NULL, &tokens, NULL, memory, 2, &y.tensor, alike, 2), 609, "`s`");
  in[V].shape[1] = N - 1;
  fails(atlas_omega_training_forward(of, NULL, &tokens, NULL, memory, 2, &y.tensor, kept, 2), 604, "`v`");
  in[V].shape[1] = N;
  CHECK(y.data[0] == 77 && states[0].data[0] == 77);

  /* Forward. */
  CHECK(atlas_omega_training_forward(of, NULL, &tokens, NULL, memory, 2, &y.tensor, kept, 2) == ATLAS_STATUS_OK);
  CHECK(off_now(N) < 1e-5);
  /* The state before the first token is the memory that is given. */
  CHECK(states[0].data[0] == in[W].data[0] && states[1].data[H * E * D - 1] == in[S].data[H * E * D - 1]);

  /* And back. */
  Array by[INPUTS];
  for (int i = 0; i < INPUTS; i++) {
    int64_t shape[4];
    memcpy(shape, shapes[i], sizeof shape);
    if (i == Q || (i >= ALPHA && i <= GAMMA)) shape[1] = P;
    fill(&by[i], 77, 0, shapes[i][3] ? 4 : 3, shape);
  }
  const DLTensor *by_memory[2] = {&by[W].tensor, &by[S].tensor};
  AtlasOmegaGradients all = {&by[Q].tensor,     &by[K].tensor,     &by[V].tensor,   &by[RK].tensor,
                             &by[ALPHA].tensor, &by[THETA].tensor, &by[ETA].tensor, &by[GAMMA].tensor,
                             NULL,              by_memory,         2};
  AtlasOmegaGradients few = all;
  few.memory_count = 1;
  fails(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, &dy.tensor, final, 2, &few), 696, "it has 2 tensors: w, s");
  by[ETA].shape[1] = N;
  fails(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, &dy.tensor, final, 2, &all), 604, "`deta`");
  by[ETA].shape[1] = P;
  fails(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, NULL, final, 2, &all), 696, "`dy` is null");
  fails(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, &dy.tensor, final, 1, &all), 601, "omega_linear");
  CHECK(by[K].data[0] == 77 && by[W].data[0] == 77);
  CHECK(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, &dy.tensor, final, 2, &all) == ATLAS_STATUS_OK);
  widen();
  for (int i = 0; i < INPUTS; i++) {
    /* That by residuals of queries is `dy` itself. */
    const Array *found = i == RQ ? &dy : &by[i];
    double largest = 0;
    for (int j = 0; j < count(i); j++) {
      double kept_x = x[i][j], slope;
      x[i][j] = kept_x + 1e-4, slope = loss();
      x[i][j] = kept_x - 1e-4, slope = (slope - loss()) / 2e-4;
      x[i][j] = kept_x;
      largest = fmax(largest, fabs(slope));
      CHECK(fabs(slope - found->data[j]) < 2e-5 * fmax(1, largest));
    }
    CHECK(largest > 1e-3);
  }

  /* Some gradients alone, from zeros behind the last token. */
  Array whole = by[K];
  fill(&by[K], 77, 0, 4, shapes[K]);
  AtlasOmegaGradients one = {0};
  one.k = &by[K].tensor;
  CHECK(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, &dy.tensor, final, 2, &one) == ATLAS_STATUS_OK);
  CHECK(memcmp(whole.data, by[K].data, sizeof(float) * N * H * D) == 0);
  CHECK(atlas_omega_training_backward(of, NULL, &tokens, NULL, kept, 2, &dy.tensor, NULL, 0, &one) == ATLAS_STATUS_OK);
  CHECK(memcmp(whole.data, by[K].data, sizeof(float) * N * H * D) != 0);

  atlas_omega_training_close(of);
  atlas_omega_training_close(NULL);
  CHECK(atlas_omega_training_segments(NULL) == 0 && atlas_omega_training_bytes(NULL) == 0);
}

/* Tensors of the tokens from one to another, in place of all. */
static AtlasOmegaTokens part(Array *parts, int from, int to) {
  for (int i = 0; i <= GAMMA; i++) {
    int width = count(i) / N;
    parts[i] = in[i];
    parts[i].tensor.shape = parts[i].shape, parts[i].shape[1] = to - from;
    parts[i].tensor.data = in[i].data + from * width;
  }
  AtlasOmegaTokens some = {&parts[Q].tensor,     &parts[K].tensor,     &parts[V].tensor,   &parts[RQ].tensor,   &parts[RK].tensor,
                           &parts[ALPHA].tensor, &parts[THETA].tensor, &parts[ETA].tensor, &parts[GAMMA].tensor};
  return some;
}

static void stream(AtlasDevice *device) {
  AtlasOmegaStream *of = NULL;
  AtlasOmegaRule pieces = rule;
  pieces.tokens = 4;
  AtlasOmegaRule wrong = pieces;
  wrong.of.step = "muon_by_chunk";
  fails(atlas_omega_stream_open(device, &wrong, NULL, &of), 652, "read");
  CHECK(of == NULL);
  CHECK(atlas_omega_stream_open(device, &pieces, NULL, &of) == ATLAS_STATUS_OK);
  CHECK(atlas_omega_stream_bytes(of) > 0);
  AtlasStream *on = NULL;
  CHECK(atlas_stream_open(device, NULL, &on) == ATLAS_STATUS_OK);

  static Array parts[GAMMA + 1];
  const int ends[2][5] = {{1, 5, 5, 6, N}, {3, 6, N, N, N}};
  for (int round = 0; round < 2; round++) {
    start();
    for (int i = 0, from = 0; i < 5; from = ends[round][i++]) {
      int to = ends[round][i];
      AtlasOmegaTokens some = part(parts, from, to);
      Array rows = y;
      rows.tensor.shape = rows.shape, rows.shape[1] = to - from, rows.tensor.data = y.data + from * H * E;
      CHECK(atlas_omega_stream_push(of, i % 2 ? on : NULL, &some, memory, 2, &rows.tensor) == ATLAS_STATUS_OK);
    }
    /* The memory stands behind the last chunk that is full. */
    CHECK(off_now(N / CHUNK * CHUNK) < 1e-5);
    atlas_omega_stream_restart(of);
  }

  /* Residuals that are zeros may be left out. */
  start();
  AtlasOmegaTokens bare = tokens;
  bare.rq = bare.rk = NULL;
  CHECK(atlas_omega_stream_push(of, NULL, &bare, memory, 2, &y.tensor) == ATLAS_STATUS_OK);
  Array got_y = y, got_w = in[W], got_s = in[S];
  start();
  CHECK(off(&got_y, &got_w, &got_s, N / CHUNK * CHUNK) > 1e-2);
  memset(in[RQ].data, 0, sizeof in[RQ].data), memset(in[RK].data, 0, sizeof in[RK].data);
  CHECK(off(&got_y, &got_w, &got_s, N / CHUNK * CHUNK) < 1e-5);

  start();
  fails(atlas_omega_stream_push(of, NULL, &tokens, memory, 1, &y.tensor), 601, "omega_linear");
  fails(atlas_omega_stream_push(of, NULL, &tokens, NULL, 2, &y.tensor), 696, "memory is null");
  fails(atlas_omega_stream_push(NULL, NULL, &tokens, memory, 2, &y.tensor), 696, "stream of tokens is null");
  y.tensor.data = in[V].data + 1;
  fails(atlas_omega_stream_push(of, NULL, &tokens, memory, 2, &y.tensor), 609, "`y`");
  CHECK(y.data[0] == 77 && in[W].data[0] == numbers[W][0] + numbers[W][1] * 11);
  atlas_stream_close(on);
  atlas_omega_stream_close(of);
  atlas_omega_stream_close(NULL);
  atlas_omega_stream_restart(NULL);
  CHECK(atlas_omega_stream_bytes(NULL) == 0);
}

static void packed(AtlasDevice *device) {
  enum { B = 3 };
  AtlasOmegaPacked *of = NULL;
  AtlasOmegaRule documents = rule;
  documents.sequences = B, documents.tokens = 4;
  CHECK(atlas_omega_packed_open(device, &documents, NULL, &of) == ATLAS_STATUS_OK);
  CHECK(atlas_omega_packed_bytes(of) > 0);
  /* The first token is in no document, and the second document is empty. */
  int32_t bounds[B + 1] = {1, 4, 4, N};
  int64_t bound_shape[1] = {B + 1}, shape[4] = {B, H, E, D};
  DLTensor starts = {bounds, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, bound_shape, NULL, 0};
  Array state[2];
  fill(&state[0], -0.4f, 0.04f, 4, shape);
  fill(&state[1], 0.2f, -0.02f, 4, shape);
  const DLTensor *memories[2] = {&state[0].tensor, &state[1].tensor};
  start();
  Array w = state[0], s = state[1];
  fails(atlas_omega_packed_launch(of, NULL, &tokens, &in[ALPHA].tensor, memories, 2, &y.tensor), 603, "`starts`");
  fails(atlas_omega_packed_launch(of, NULL, &tokens, NULL, memories, 2, &y.tensor), 696, "`starts` is null");
  fails(atlas_omega_packed_launch(of, NULL, &tokens, &starts, memory, 2, &y.tensor), 604, "`w`");
  CHECK(y.data[0] == 77);
  CHECK(atlas_omega_packed_launch(of, NULL, &tokens, &starts, memories, 2, &y.tensor) == ATLAS_STATUS_OK);
  widen();
  memset(read_, 0, sizeof read_);
  for (int b = 0; b < B; b++) {
    double one_w[H * E * D], one_s[H * E * D];
    for (int i = 0; i < H * E * D; i++) one_w[i] = w.data[b * H * E * D + i], one_s[i] = s.data[b * H * E * D + i];
    define(bounds[b], bounds[b + 1], one_w, one_s);
    for (int i = 0; i < H * E * D; i++) {
      CHECK(fabs(one_w[i] - state[0].data[b * H * E * D + i]) < 1e-5);
      CHECK(fabs(one_s[i] - state[1].data[b * H * E * D + i]) < 1e-5);
    }
  }
  for (int i = 0; i < N * H * E; i++) CHECK(fabs(read_[i] - y.data[i]) < 1e-5);
  atlas_omega_packed_close(of);
  atlas_omega_packed_close(NULL);
  CHECK(atlas_omega_packed_bytes(NULL) == 0);
}

int main(void) {
  AtlasDevice *device = NULL;
  CHECK(atlas_device_open("cpu", &device) == ATLAS_STATUS_OK);
  training(device);
  stream(device);
  packed(device);
  atlas_device_close(device);
  puts("all right");
  return 0;
}
