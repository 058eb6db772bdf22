// C = A * B in f32 with 32x32 tiles in shared memory, four results a thread, ragged sizes.

constexpr int TILE = 32, ROWS = 8;

extern "C" __global__ void __launch_bounds__(TILE * ROWS)
    sgemm_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x, top = blockIdx.y * TILE;
    float sum[TILE / ROWS] = {};
    for (int base = 0; base < k; base += TILE) {
        for (int r = threadIdx.y; r < TILE; r += ROWS) {
            int ka = base + threadIdx.x, kb = base + r;
            as[r][threadIdx.x] = top + r < m && ka < k ? a[(top + r) * k + ka] : 0;
            bs[r][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0;
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < TILE; ++i)
#pragma unroll
            for (int r = 0; r < TILE / ROWS; ++r) sum[r] += as[threadIdx.y + r * ROWS][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    for (int r = 0; r < TILE / ROWS; ++r) {
        int row = top + threadIdx.y + r * ROWS;
        if (row < m && column < n) c[row * n + column] = sum[r];
    }
}
