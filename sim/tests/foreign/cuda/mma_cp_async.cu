// C = A * B^T of bf16 with mma.sync: cp.async into two stages, swizzled rows, ldmatrix; a CTA makes a 64x64 tile.

#include <cuda_bf16.h>

constexpr int BM = 64, BN = 64, BK = 32, STAGES = 2;

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Rows of 64 bytes in 16-byte chunks; the chunk moves with the row so that ldmatrix meets no bank twice.
__device__ int swizzled(int row, int chunk) { return row * BK + ((chunk ^ (row / 2 % 4)) * 8); }

__device__ void copy_tile(__nv_bfloat16* to, const __nv_bfloat16* from, int k) {
    for (int i = threadIdx.x; i < 64 * BK / 8; i += 128) {
        int row = i / (BK / 8), chunk = i % (BK / 8);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to + swizzled(row, chunk))),
                     "l"(from + (long long)row * k + chunk * 8)
                     : "memory");
    }
}

__device__ void ldmatrix4(unsigned (&r)[4], const __nv_bfloat16* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
    mma_cp_async(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
    __shared__ alignas(128) __nv_bfloat16 as[STAGES][BM * BK], bs[STAGES][BN * BK];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    a += (long long)blockIdx.y * BM * k;
    b += (long long)blockIdx.x * BN * k;
    float acc[2][4][4] = {};
    copy_tile(as[0], a, k);
    copy_tile(bs[0], b, k);
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (int t = 0; t < k / BK; ++t) {
        if (t + 1 < k / BK) {
            copy_tile(as[(t + 1) % STAGES], a + (t + 1) * BK, k);
            copy_tile(bs[(t + 1) % STAGES], b + (t + 1) * BK, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        const __nv_bfloat16 *at = as[t % STAGES], *bt = bs[t % STAGES];
#pragma unroll
        for (int kk = 0; kk < BK / 16; ++kk) {
            unsigned af[2][4], bf[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) ldmatrix4(af[i], at + swizzled(wm + i * 16 + lane % 16, kk * 2 + lane / 16));
#pragma unroll
            for (int j = 0; j < 2; ++j)
                ldmatrix4(bf[j], bt + swizzled(wn + j * 16 + lane % 8 + lane / 16 * 8, kk * 2 + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                                 "{%8,%9}, {%0,%1,%2,%3};"
                                 : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
                                 : "r"(af[i][0]), "r"(af[i][1]), "r"(af[i][2]), "r"(af[i][3]),
                                   "r"(bf[j / 2][j % 2 * 2]), "r"(bf[j / 2][j % 2 * 2 + 1]));
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int h = 0; h < 2; ++h) {
                int row = blockIdx.y * BM + wm + i * 16 + lane / 4 + h * 8;
                int column = blockIdx.x * BN + wn + j * 8 + lane % 4 * 2;
                *(float2*)(c + (long long)row * n + column) = make_float2(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
            }
}
