// Packed arithmetic in half and bfloat16: fused multiply-add, comparisons, saturation, conversions to integers.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_math(const __half2* x, const __nv_bfloat162* y, __half2* h, __nv_bfloat162* b, int* i,
                                     int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    __half2 v = x[at];
    __half2 top = __hmax2(v, __half2half2(__low2half(v)));
    h[at] = __hfma2(v, top, __hsub2(v, __float2half2_rn(0.5f)));
    h[n + at] = __hmul2_sat(v, v);
    h[2 * n + at] = __hgt2(v, __float2half2_rn(0.0f));
    h[3 * n + at] = __lowhigh2highlow(__hneg2(__habs2(v)));
    __nv_bfloat162 w = y[at];
    b[at] = __hfma2(w, w, __hmin2(w, __float2bfloat162_rn(0.25f)));
    b[n + at] = __hmul2(w, __floats2bfloat162_rn(3.0f, -2.0f));
    int rounded = __half2int_rd(__low2half(v)) * 1000 + __half2int_rn(__high2half(v));
    i[at] = rounded + (__low2bfloat16(w) > __high2bfloat16(w));
}
