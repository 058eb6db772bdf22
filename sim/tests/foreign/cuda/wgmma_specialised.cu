// The product again with a producer warpgroup and a consumer: full and empty barriers, setmaxnreg, stmatrix, TMA store.

#include "hopper.cuh"

constexpr int BM = 64, BN = 64, BK = 64, STAGES = 3;
constexpr int BYTES = (BM + BN) * BK * 2;

struct Shared {
    __nv_bfloat16 a[STAGES][BM * BK], b[STAGES][BN * BK], c[BM * BN];
    uint64_t full[STAGES], empty[STAGES];
};

extern "C" __global__ void __launch_bounds__(256, 1)
    wgmma_specialised(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                      const __grid_constant__ TensorMap c, int tiles_m, int tiles_n, int steps) {
    extern __shared__ __align__(1024) char dynamic[];
    Shared& s = *(Shared*)dynamic;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], 4);
        }
        fence_barrier_init();
    }
    __syncthreads();
    // The ring goes on from tile to tile.
    int turn = 0;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x)
                for (int t = 0; t < steps; ++t, ++turn) {
                    int i = turn % STAGES;
                    barrier_wait(&s.empty[i], turn / STAGES % 2 ^ 1);
                    barrier_expect(&s.full[i], BYTES);
                    tma_load(s.a[i], &a, &s.full[i], t * BK, tile / tiles_n * BM);
                    tma_load(s.b[i], &b, &s.full[i], t * BK, tile % tiles_n * BN);
                }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        float acc[32];
        for (int t = 0; t < steps; ++t, ++turn) {
            int i = turn % STAGES;
            barrier_wait(&s.full[i], turn / STAGES % 2);
            uint64_t da = matrix_descriptor(s.a[i]), db = matrix_descriptor(s.b[i]);
            wgmma_fence();
            for (int kk = 0; kk < BK / 16; ++kk) wgmma_64x64x16(acc, da + kk * 2, db + kk * 2, t > 0 || kk > 0);
            wgmma_commit();
            wgmma_wait<0>();
            if (lane == 0) barrier_arrive(&s.empty[i]);
        }
        // The store of the tile before must have left the buffer.
        if (threadIdx.x == 128) bulk_wait_read<0>();
        asm volatile("bar.sync 1, 128;" ::: "memory");
        for (int j = 0; j < 8; j += 2) {
            uint32_t r[4];
            for (int q = 0; q < 4; ++q) {
                __nv_bfloat162 pair = __floats2bfloat162_rn(acc[j * 4 + q * 2], acc[j * 4 + q * 2 + 1]);
                r[q] = *(uint32_t*)&pair;
            }
            int row = warp * 16 + lane % 16, chunk = j + lane / 16;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             shared_address(&s.c[row * BN + ((chunk ^ (row & 7)) * 8)])),
                         "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                         : "memory");
        }
        fence_proxy_async();
        asm volatile("bar.sync 1, 128;" ::: "memory");
        if (threadIdx.x == 128) {
            tma_store(&c, s.c, tile % tiles_n * BN, tile / tiles_n * BM);
            bulk_commit();
        }
    }
    if (threadIdx.x == 128) bulk_wait<0>();
}
