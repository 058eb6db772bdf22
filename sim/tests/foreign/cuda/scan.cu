// Inclusive prefix sum of 64-bit integers by one CTA: shuffles up within warps, then over the warps' totals.

constexpr int WARPS = 8;

extern "C" __global__ void __launch_bounds__(32 * WARPS) scan(const long long* in, long long* out, int n) {
    __shared__ long long totals[WARPS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    long long carry = 0;
    for (int base = 0; base < n; base += blockDim.x) {
        int i = base + threadIdx.x;
        long long v = i < n ? in[i] : 0;
        for (int d = 1; d < 32; d *= 2) {
            long long u = __shfl_up_sync(~0u, v, d);
            if (lane >= d) v += u;
        }
        if (lane == 31) totals[warp] = v;
        __syncthreads();
        if (warp == 0) {
            long long t = lane < WARPS ? totals[lane] : 0;
            for (int d = 1; d < WARPS; d *= 2) {
                long long u = __shfl_up_sync(~0u, t, d);
                if (lane >= d) t += u;
            }
            if (lane < WARPS) totals[lane] = t;
        }
        __syncthreads();
        v += carry + (warp ? totals[warp - 1] : 0);
        if (i < n) out[i] = v;
        carry += totals[WARPS - 1];
        __syncthreads();
    }
}
