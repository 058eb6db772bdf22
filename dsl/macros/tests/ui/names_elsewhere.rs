//! Functions, methods and fields of Triton, CUDA, numpy and PyTorch: tests/agreement/advice_elsewhere.rs has what to write.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel functions(x: &Tensor<f32, [N, D]>, i: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let a = where(load(x[n, ..]) > 0.0, 1.0, 0.0);
            let b = rand(a);
            let c = tl::exp(np::sqrt(f32::exp(a)));
            let d = torch::relu(a) + f32::max(a, 0.0) + f32::clone(a);
            let e = tl.exp(a) + np.square(a) + torch.anything(a);
            let f = arange(0, 16) + range(0, 16);
            let g = program_id(0) + tl::program_id(0);
            let h = load(i[n]).to(f32) + float(load(i[n])) + load(i[n]).astype(f32);
            let j = a.matmul(a) + a.unsqueeze(0) + fmaxf(a, b) + expf(a);
            __syncthreads();
            printf(c);
            atomic_add(y, n, d + e + f + g + h + j);
            store(y[n, ..], a);
        }
    }

    pub kernel sizes(x: &Tensor<f32, [N, D]>, v: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            let a = x.shape[0] + x.shape[-1] + x.shape + x.size(1) + size(x, 1) + v.len() + len(v);
            let b = t.len() + t.shape[0] + blockIdx.x + t.dtype + t.exp + t.foo;
            store(y[n, ..], x.T + t.T + a + b);
        }
    }

    pub kernel reductions(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            let a = sum(t, axis = 1, keepdims = true) + sum(t, dim = 1) + max(t, keepdim = True);
            let b = t.sum(axis = 1) + t.sum() + t.max(0.0) + t.max(1) + t.min(t) + t.dot(t) + sum(t, axis = (0, 1));
            store(y[n], a + b);
        }
    }

    pub kernel axes(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            let a = max(t, axis = -3);
            let b = min(t, axis = 2);
            let c = iota([BN, 1], -2) + iota([BN], -2);
            store(y[n], sum(t, axis = -1) + a + b + c.cast::<f32>());
        }
    }
}

fn main() {}
