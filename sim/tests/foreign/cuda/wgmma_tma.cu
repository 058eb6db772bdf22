// C = A * B^T of bf16: TMA into two stages, wgmma from shared memory; one warpgroup does everything.

#include "hopper.cuh"

constexpr int BM = 64, BN = 64, BK = 64, STAGES = 2;
constexpr int BYTES = (BM + BN) * BK * 2;

extern "C" __global__ void __launch_bounds__(128)
    wgmma_tma(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, int n, int k) {
    __shared__ alignas(1024) __nv_bfloat16 as[STAGES][BM * BK], bs[STAGES][BN * BK];
    __shared__ uint64_t full[STAGES];
    int row = blockIdx.y * BM, column = blockIdx.x * BN, steps = k / BK;
    auto load = [&](int t) {
        uint64_t* bar = &full[t % STAGES];
        barrier_expect(bar, BYTES);
        tma_load(as[t % STAGES], &a, bar, t * BK, row);
        tma_load(bs[t % STAGES], &b, bar, t * BK, column);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 1);
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int t = 0; t < STAGES && t < steps; ++t) load(t);
    float acc[32] = {};
    for (int t = 0; t < steps; ++t) {
        barrier_wait(&full[t % STAGES], t / STAGES % 2);
        uint64_t da = matrix_descriptor(as[t % STAGES]), db = matrix_descriptor(bs[t % STAGES]);
        wgmma_fence();
        for (int kk = 0; kk < BK / 16; ++kk) wgmma_64x64x16(acc, da + kk * 2, db + kk * 2, 1);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
        if (threadIdx.x == 0 && t + STAGES < steps) load(t + STAGES);
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int j = 0; j < 8; ++j)
        for (int h = 0; h < 2; ++h) {
            float* to = c + (long long)(row + warp * 16 + lane / 4 + h * 8) * n + column + j * 8 + lane % 4 * 2;
            *(float2*)to = make_float2(acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1]);
        }
}
