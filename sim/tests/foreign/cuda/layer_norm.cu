// Layer norm of half rows, 8 elements a load: vector loads, half2 conversions, rsqrt.

#include <cuda_fp16.h>

constexpr int WARPS = 2;

struct alignas(16) Eight {
    __half2 pair[4];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    layer_norm(const Eight* __restrict__ x, const float4* __restrict__ gamma, const float4* __restrict__ beta,
               Eight* __restrict__ y, int columns, float epsilon) {
    __shared__ float2 part[WARPS];
    int chunks = columns / 8;
    const Eight* row = x + blockIdx.x * chunks;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < chunks; i += blockDim.x) {
        Eight v = row[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float2 f = __half22float2(v.pair[j]);
            sum += f.x + f.y;
            squares += f.x * f.x + f.y * f.y;
        }
    }
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_down_sync(~0u, sum, d);
        squares += __shfl_down_sync(~0u, squares, d);
    }
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = make_float2(sum, squares);
    __syncthreads();
    sum = squares = 0;
    for (int w = 0; w < WARPS; ++w) {
        sum += part[w].x;
        squares += part[w].y;
    }
    float mean = sum / columns;
    float scale = rsqrtf(squares / columns - mean * mean + epsilon);
    for (int i = threadIdx.x; i < chunks; i += blockDim.x) {
        Eight v = row[i];
        float4 g[2] = {gamma[2 * i], gamma[2 * i + 1]}, b[2] = {beta[2 * i], beta[2 * i + 1]};
        const float *gs = &g[0].x, *bs = &b[0].x;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float2 f = __half22float2(v.pair[j]);
            f.x = (f.x - mean) * scale * gs[2 * j] + bs[2 * j];
            f.y = (f.y - mean) * scale * gs[2 * j + 1] + bs[2 * j + 1];
            v.pair[j] = __float22half2_rn(f);
        }
        y[blockIdx.x * chunks + i] = v;
    }
}
