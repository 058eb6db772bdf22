//! Kernels that cannot be fused, and the messages.

use super::stages::*;
use atlas::prelude::*;

atlas_kernel! {
    /// Numbers elements without reading any: its tiles have no edge.
    kernel numbered<T: Float>(like: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(like[n]).or(1.0));
        }
    }

    kernel summed<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<f32, [M]>)
    {
        for m in grid(tiles(M, 1)) {
            let mut acc = zeros::<f32>([1]);
            for n in tiles(N, 16) {
                acc += sum(load(x[n]).cast::<f32>(), axis = 0);
            }
            store(y[m], acc);
        }
    }

    /// Adds its index to each row.
    kernel numbered_rows<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    {
        for n in grid(N) {
            store(y[n, ..], load(x[n, ..]) + n.cast::<T>());
        }
    }

    kernel in_place<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(y[n]) + load(x[n]));
        }
    }

    /// Writes `state` and reads `t` afterwards.
    kernel written_first<T: Float>(t: &Tensor<T, [N]>, state: &mut Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(state[n], load(state[n]) * 2.0);
            store(y[n], load(t[n]));
        }
    }

    /// Reads `t` and writes `state` afterwards.
    kernel read_first<T: Float>(t: &Tensor<T, [N]>, state: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(state[n], load(state[n]) + load(t[n]));
        }
    }

    kernel doubled<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(x[n]) * 2.0);
        }
    }

    /// Computes each element from the previous one.
    kernel before<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(N) {
            store(y[n], load(x[span(n - 1, 1)]).or(0.0));
        }
    }
}

fuse! {
    kernel no_such_name = affine(q = z) >> normed;
    kernel unread = doubled(y = left) >> doubled(x = right);
    kernel own_input = doubled(y = x) >> doubled;
    kernel two_types = totals >> measured;
    kernel unknown_type = activated >> activated;
    kernel no_type = activated(U = f33) >> activated;
    kernel a_number = affine(a = w) >> normed;
    kernel of_refused = no_such_name >> doubled;
    kernel no_edge = numbered >> summed;
    kernel moved_back = doubled >> before;
    kernel changed = in_place >> doubled;
    kernel too_late = doubled(x = s) >> written_first(state = s);
    kernel in_time = doubled(x = s) >> read_first(state = s);
    kernel element_by_element = numbered_rows >> differences;
    kernel made_whole = softmaxed >> affine;
}

/// The error of a launch with the right number of tensors, all of this rank.
fn said(kernel: &'static atlas_dsl::KernelDef, rank: usize) -> String {
    let cpu = Device::cpu();
    let shape = [24; 2];
    let x = Tensor::zeros(&cpu, DType::F32, &shape[..rank]).unwrap();
    let row = Tensor::zeros(&cpu, DType::F32, [24]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, &shape[..rank]).unwrap();
    let mut out = Some(&mut y);
    let args: Vec<atlas_runtime::Arg<'_>> = kernel
        .params
        .iter()
        .map(|p| match p {
            atlas_dsl::def::ParamDef::Scalar { .. } => atlas_runtime::Arg::F32(1.0),
            p if p.name() == "y" => atlas_runtime::Arg::Out(out.take().unwrap()),
            atlas_dsl::def::ParamDef::Tensor { dims, .. } if dims.len() < rank => atlas_runtime::Arg::In(&row),
            _ => atlas_runtime::Arg::In(&x),
        })
        .collect();
    kernel.launch(&cpu, args).err().map_or_else(|| format!("{} has no error", kernel.name), |e| e.to_string())
}

pub(super) fn has(text: &str, code: &str, words: &[&str]) {
    let missing: Vec<&&str> = words.iter().filter(|w| !text.contains(**w)).collect();
    assert!(text.contains(code) && missing.is_empty(), "{missing:?} not in: {text}");
}

#[test]
fn signatures_that_do_not_fit() {
    has(&said(&no_such_name, 2), "ATL230", &["no_such_name", "`affine` has no parameter `q`", "x, a, y, T"]);
    has(&said(&unread, 1), "ATL230", &["nobody reads `left` of `doubled`"]);
    has(&said(&own_input, 1), "ATL230", &["what `doubled` makes is called `x`, but another tensor is, too"]);
    has(&said(&two_types, 2), "ATL230", &["`y` of `totals` and `x` of `measured`", "f32 and i32"]);
    has(&said(&unknown_type, 2), "ATL230", &["`U` of `activated`", "activated(U = f32)"]);
    has(&said(&no_type, 2), "ATL230", &["`f33`", "no element type"]);
    has(&said(&a_number, 2), "ATL230", &["one is a tensor and one a number"]);
    has(&said(&of_refused, 2), "ATL230", &["`affine` has no parameter `q`"]);
}

#[test]
fn a_maker_reads_what_was_there_before() {
    let cpu = Device::cpu();
    let mut s = cpu.tensor_from(&[1.0_f32, 2.0, 3.0], [3]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [3]).unwrap();
    has(&too_late.launch(&cpu, args!(&mut s, &mut y)).unwrap_err().to_string(), "ATL231", &["`doubled` reads `s`"]);
    in_time.launch(&cpu, args!(&mut s)).unwrap();
    assert_eq!(s.to_vec::<f32>().unwrap(), [3.0, 6.0, 9.0]);
}

#[test]
fn tiles_that_do_not_fit() {
    has(&said(&no_edge, 1), "ATL232", &["`y` of `numbered`", "`summed`", "no edge along axis 0"]);
    has(&said(&moved_back, 1), "ATL231", &["`y` of `doubled`", "computed place"]);
    has(&said(&changed, 1), "ATL231", &["`y` of `in_place`", "which it writes"]);
    has(
        &said(&element_by_element, 2),
        "ATL231",
        &["`y` of `numbered_rows`", "`differences`", "element by element", "its number is computed with"],
    );
    has(&said(&made_whole, 2), "ATL231", &["`y` of `softmaxed`", "made of all of `D`"]);
}
