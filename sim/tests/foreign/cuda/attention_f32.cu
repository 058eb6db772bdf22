// Causal attention in f32 with an online softmax: a warp for each query, keys and values in shared memory.

constexpr int DIM = 32, KEYS = 32, WARPS = 4;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attention_f32(const float* q, const float* k, const float* v, float* out, int length, float scale) {
    __shared__ float ks[KEYS][DIM + 1], vs[KEYS][DIM], qs[WARPS][DIM];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int query = blockIdx.x * WARPS + warp;
    long long head = (long long)blockIdx.y * length * DIM;
    q += head, k += head, v += head, out += head;
    qs[warp][lane] = q[query * DIM + lane] * scale;
    __syncwarp();
    float top = -INFINITY, sum = 0, acc = 0;
    for (int base = 0; base < (blockIdx.x + 1) * WARPS; base += KEYS) {
        __syncthreads();
        for (int r = warp; r < KEYS; r += WARPS) {
            ks[r][lane] = base + r < length ? k[(base + r) * DIM + lane] : 0;
            vs[r][lane] = base + r < length ? v[(base + r) * DIM + lane] : 0;
        }
        __syncthreads();
        float s = 0;
        for (int d = 0; d < DIM; ++d) s += qs[warp][d] * ks[lane][d];
        if (base + lane > query) s = -INFINITY;
        float m = s;
        for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
        m = fmaxf(m, top);
        float p = __expf(s - m), old = __expf(top - m), row = p;
        for (int d = 16; d > 0; d /= 2) row += __shfl_xor_sync(~0u, row, d);
        sum = sum * old + row;
        acc *= old;
        for (int j = 0; j < KEYS; ++j) acc += __shfl_sync(~0u, p, j) * vs[j][lane];
        top = m;
    }
    out[query * DIM + lane] = acc / sum;
}
