/* Runs the Omega rule on a linear memory and an iteration of Newton and Schulz, and compares both with plain loops. */
#include "arrays.h"

#include <math.h>

enum { N = 7, H = 2, D = 3, E = 4, CHUNK = 3, WINDOW = 2, CHUNKS = (N + CHUNK - 1) / CHUNK };

static AtlasArg tensor(Array *a) {
  AtlasArg arg = {ATLAS_ARG_TENSOR, 0, {.tensor = &a->tensor}};
  return arg;
}

static AtlasArg whole(int64_t x) {
  AtlasArg arg = {ATLAS_ARG_INT, 0, {.whole = x}};
  return arg;
}

static Array alpha, theta, eta, band, q, k, v, rq, rk, w, s, y;

static void start(void) {
  int64_t gates[3] = {1, N, H}, bands[4] = {1, N, H, WINDOW}, keys[4] = {1, N, H, D}, values[4] = {1, N, H, E};
  int64_t memory[4] = {1, H, E, D};
  fill(&alpha, 0.9f, 0.004f, 3, gates);
  fill(&theta, 0.3f, 0.01f, 3, gates);
  fill(&eta, 0.02f, 0.002f, 3, gates);
  fill(&band, 0.1f, 0.03f, 4, bands);
  fill(&q, -1, 0.1f, 4, keys);
  fill(&k, 1, -0.09f, 4, keys);
  fill(&v, -0.8f, 0.07f, 4, values);
  fill(&rq, 0.5f, -0.02f, 4, values);
  fill(&rk, -0.1f, 0.01f, 4, values);
  fill(&w, -0.4f, 0.04f, 4, memory);
  fill(&s, 0.2f, -0.02f, 4, memory);
  fill(&y, 77, 0, 4, values);
}

/* The rule as it is defined, token by token; gradients of a chunk are taken at the memory before it. */
static double off(void) {
  double worst = 0;
  Array got_w = w, got_s = s, got_y = y;
  start();
  for (int h = 0; h < H; h++) {
    double m[E][D], momentum[E][D], before[E][D];
    for (int e = 0; e < E; e++)
      for (int d = 0; d < D; d++) {
        m[e][d] = w.data[(h * E + e) * D + d];
        momentum[e][d] = s.data[(h * E + e) * D + d];
      }
    for (int t = 0; t < N; t++) {
      if (t % CHUNK == 0) memcpy(before, m, sizeof m);
      double step[E][D] = {{0}};
      for (int j = 0; j < WINDOW; j++) {
        int i = t - (WINDOW - 1) + j;
        if (i < 0) continue;
        for (int e = 0; e < E; e++) {
          double error = rk.data[(i * H + h) * E + e] - v.data[(i * H + h) * E + e];
          for (int d = 0; d < D; d++) error += before[e][d] * k.data[(i * H + h) * D + d];
          for (int d = 0; d < D; d++)
            step[e][d] += band.data[(t * H + h) * WINDOW + j] * 2 * error * k.data[(i * H + h) * D + d];
        }
      }
      int gate = t * H + h;
      for (int e = 0; e < E; e++) {
        double read = rq.data[gate * E + e];
        for (int d = 0; d < D; d++) {
          momentum[e][d] = theta.data[gate] * momentum[e][d] + step[e][d];
          m[e][d] = alpha.data[gate] * m[e][d] - eta.data[gate] * momentum[e][d];
          read += m[e][d] * q.data[gate * D + d];
        }
        worst = fmax(worst, fabs(read - got_y.data[gate * E + e]));
      }
    }
    for (int e = 0; e < E; e++)
      for (int d = 0; d < D; d++) {
        int at = (h * E + e) * D + d;
        worst = fmax(worst, fmax(fabs(m[e][d] - got_w.data[at]), fabs(momentum[e][d] - got_s.data[at])));
      }
  }
  return worst;
}

static void omega(AtlasDevice *device) {
  AtlasOmega rule = {"linear", "descent", CHUNK, WINDOW, D, E, 0, {kDLFloat, 32, 1}};
  const char *chain = NULL, *signature = NULL;
  size_t keys = 0;
  CHECK(atlas_omega_chain(&rule, &chain, &keys) == ATLAS_STATUS_OK);
  CHECK(strcmp(chain, "omega_linear") == 0 && keys == 8);
  CHECK(atlas_chain_signature(chain, &signature) == ATLAS_STATUS_OK);
  CHECK(strstr(signature, "omega_linear<T: bf16 | f16 | f32>(alpha: &Tensor<f32, [B, N, H]>, theta"));
  CHECK(strstr(signature, "predicts: i32; C, L, K)"));
  AtlasOmega wrong = rule;
  wrong.memory = "deep";
  fails(atlas_omega_chain(&wrong, &chain, &keys), 696, "linear, mlp, gated and normed");

  start();
  AtlasArg scale = {ATLAS_ARG_FLOAT, 0, {.real = 2}};
  /* In the signature's order; `before` and `commit` stand behind the gates, `scale` and `predicts` at the end. */
  AtlasArg args[16] = {tensor(&alpha), tensor(&theta), tensor(&eta), tensor(&band), whole(0),   whole(CHUNKS),
                       tensor(&q),     tensor(&k),     tensor(&v),   tensor(&rq),   tensor(&rk), tensor(&w),
                       tensor(&s),     tensor(&y),     scale,        whole(1)};
  AtlasSize sizes[3] = {{"C", CHUNKS}, {"L", CHUNK}, {"K", keys}};
  AtlasWorkspace *space = NULL;
  fails(atlas_chain_workspace(device, "omega", args, 16, sizes, 3, &space), 696, "no chain `omega`");
  fails(atlas_chain_workspace(device, "omega_linear", args, 16, sizes, 2, &space), 645, "`K`");
  fails(atlas_chain_workspace(device, "omega_linear", args, 15, sizes, 3, &space), 601, "omega_linear");
  CHECK(space == NULL);
  CHECK(atlas_chain_workspace(device, "omega_linear", args, 16, sizes, 3, &space) == ATLAS_STATUS_OK);
  CHECK(atlas_workspace_bytes(space) >= sizeof(float) * H * CHUNKS * CHUNK * 8);
  CHECK(y.data[0] == 77);
  CHECK(atlas_chain_launch(space, NULL, args, 16) == ATLAS_STATUS_OK);
  CHECK(off() < 1e-5);

  /* Prepared, and on a stream. */
  AtlasPreparedChain *prepared = NULL;
  AtlasStream *stream = NULL;
  start();
  CHECK(atlas_stream_open(device, NULL, &stream) == ATLAS_STATUS_OK);
  CHECK(atlas_chain_prepare(space, args, 16, &prepared) == ATLAS_STATUS_OK);
  CHECK(y.data[0] == 77);
  CHECK(atlas_prepared_chain_launch(prepared, space, stream, args, 16) == ATLAS_STATUS_OK);
  CHECK(off() < 1e-5);

  /* Mistakes: nothing is written. */
  start();
  float was = w.data[0];
  fails(atlas_chain_launch(space, stream, args, 15), 601, "omega_linear");
  fails(atlas_chain_launch(NULL, stream, args, 16), 696, "workspace is null");
  v.shape[1] = N - 1;
  fails(atlas_chain_launch(space, stream, args, 16), 643, "`P`");
  v.shape[1] = N;
  y.tensor.dtype.bits = 64;
  fails(atlas_chain_launch(space, stream, args, 16), 643, "`T`");
  y.tensor.dtype.bits = 32;
  y.tensor.data = w.data;
  fails(atlas_chain_launch(space, stream, args, 16), 609, "`y`");
  y.tensor.data = y.data;
  CHECK(y.data[0] == 77 && w.data[0] == was);

  atlas_prepared_chain_close(prepared);
  atlas_workspace_close(space);
  atlas_stream_close(stream);
  atlas_prepared_chain_close(NULL);
  atlas_workspace_close(NULL);
  CHECK(atlas_workspace_bytes(NULL) == 0);
}

/* Five steps on a matrix of 2 x 3, as `torch.optim.Muon` has them. */
static void newton_schulz(AtlasDevice *device) {
  AtlasIterationStep steps[5];
  for (int i = 0; i < 5; i++) {
    AtlasIterationStep step = {3.4445, -4.7750, 2.0315, i == 0 ? 0 : 0.5};
    steps[i] = step;
  }
  AtlasIteration of = {steps, 5, 1, 1e-7f, 1, 0};
  Array g, out;
  int64_t shape[3] = {1, 2, 3};
  fill(&g, -1, 0.11f, 3, shape);
  fill(&out, 77, 0, 3, shape);
  CHECK(atlas_newton_schulz(device, NULL, &g.tensor, &out.tensor, &of) == ATLAS_STATUS_OK);
  double x[2][3], norm = 0;
  for (int i = 0; i < 6; i++) norm += g.data[i] * g.data[i];
  for (int i = 0; i < 6; i++) x[i / 3][i % 3] = g.data[i] / sqrt(norm);
  for (int step = 0; step < 5; step++) {
    double a[2][2], p[2][2], next[2][3];
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) a[i][j] = x[i][0] * x[j][0] + x[i][1] * x[j][1] + x[i][2] * x[j][2];
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++)
        p[i][j] = -4.7750 * a[i][j] + 2.0315 * (a[i][0] * a[0][j] + a[i][1] * a[1][j]) + (i == j ? 3.4445 : 0);
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 3; j++) next[i][j] = p[i][0] * x[0][j] + p[i][1] * x[1][j];
    memcpy(x, next, sizeof x);
  }
  for (int i = 0; i < 6; i++) CHECK(fabs(x[i / 3][i % 3] - out.data[i]) < 1e-4);
  out.data[0] = 77, out.shape[2] = 2;
  fails(atlas_newton_schulz(device, NULL, &g.tensor, &out.tensor, &of), 696, "one shape");
  out.tensor.ndim = g.tensor.ndim = 2;
  fails(atlas_newton_schulz(device, NULL, &g.tensor, &g.tensor, &of), 696, "[B, M, N]");
  CHECK(out.data[0] == 77);
}

int main(void) {
  size_t count = atlas_chain_count();
  CHECK(count >= 40 && atlas_chain_name(count) == NULL);
  for (size_t i = 1; i < count; i++) CHECK(strcmp(atlas_chain_name(i - 1), atlas_chain_name(i)) < 0);
  AtlasDevice *device = NULL;
  CHECK(atlas_device_open("cpu", &device) == ATLAS_STATUS_OK);
  omega(device);
  newton_schulz(device);
  atlas_device_close(device);
  puts("all right");
  return 0;
}
