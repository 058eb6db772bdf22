// Softmax of each row by one CTA: shuffles within warps, shared memory between them.

constexpr int WARPS = 4;

__device__ float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) softmax_rows(const float* x, float* y, int columns) {
    __shared__ float part[WARPS];
    const float* row = x + (long long)blockIdx.x * columns;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, row[i]);
    top = warp_max(top);
    if (lane == 0) part[warp] = top;
    __syncthreads();
    top = warp_max(lane < WARPS ? part[lane] : -INFINITY);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(row[i] - top);
    sum = warp_sum(sum);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    sum = warp_sum(lane < WARPS ? part[lane] : 0);
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        y[(long long)blockIdx.x * columns + i] = __expf(row[i] - top) / sum;
}
