//! Tensors and views.

use atlas_dsl::DType;
use atlas_runtime::{Device, Element, Tensor};

fn counted(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
    Device::cpu().tensor_from(&values, shape).unwrap()
}

fn message<T>(result: atlas_runtime::Result<T>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_slice_starts_inside() {
    let t = counted(&[3, 4]);
    let s = t.slice(1, 1..3).unwrap();
    assert_eq!((s.shape(), s.strides(), s.is_contiguous()), (&[3, 2][..], &[4, 1][..], false));
    assert_eq!(s.to_vec::<f32>().unwrap(), [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
    assert_eq!(t.slice(0, 1..2).unwrap().to_vec::<f32>().unwrap(), [4.0, 5.0, 6.0, 7.0]);
    assert!(t.slice(0, 1..2).unwrap().is_contiguous());
    assert!(t.slice(0, 3..3).unwrap().is_empty());
}

#[test]
fn transpose_permute_expand_and_reshape() {
    let t = counted(&[2, 3]);
    assert_eq!(t.transpose(0, 1).unwrap().to_vec::<f32>().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let cube = counted(&[2, 3, 4]);
    let p = cube.permute([2, 0, 1]).unwrap();
    assert_eq!((p.shape(), p.strides()), (&[4, 2, 3][..], &[1, 12, 4][..]));
    assert_eq!(p.contiguous().unwrap().to_vec::<f32>().unwrap(), p.to_vec::<f32>().unwrap());
    let row = counted(&[1, 3]).expand([2, 2, 3]).unwrap();
    assert_eq!(row.strides(), [0, 0, 1]);
    assert_eq!(row.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0].repeat(4));
    assert_eq!(cube.reshape([6, 4]).unwrap().strides(), [4, 1]);
    assert!(counted(&[0, 4]).reshape([2, 0]).unwrap().to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn address_ranges_cover_what_is_touched() {
    let t = counted(&[4, 4]);
    let column = t.slice(1, 1..2).unwrap();
    let range = column.address_range();
    assert_eq!(range.end - range.start, (3 * 4 + 1) * 4);
    assert!(t.slice(0, 0..0).unwrap().address_range().is_empty());
}

#[test]
fn every_element_type_comes_back() {
    use float8::{F8E4M3, F8E5M2};
    use half::{bf16, f16};
    let cpu = Device::cpu();
    assert_eq!(cpu.tensor_from(&[1_i64, -2], [2]).unwrap().to_vec::<i64>().unwrap(), [1, -2]);
    assert_eq!(cpu.tensor_from(&[1_i32, -2], [2]).unwrap().to_f64_vec().unwrap(), [1.0, -2.0]);
    assert_eq!(cpu.tensor_from(&[0.5_f64], [1, 1]).unwrap().to_vec::<f64>().unwrap(), [0.5]);
    assert_eq!(cpu.tensor_from(&[f16::from_f32(0.5)], [1]).unwrap().to_f64_vec().unwrap(), [0.5]);
    assert_eq!(cpu.tensor_from(&[bf16::from_f32(0.5)], []).map(|_| ()).map_err(|_| ()), Ok(()));
    let codes: Vec<F8E4M3> = (0..=255).map(F8E4M3::from_bits).collect();
    let back = cpu.tensor_from(&codes, [256]).unwrap().to_vec::<F8E4M3>().unwrap();
    assert!(back.iter().map(F8E4M3::to_bits).eq(0..=255));
    let t = cpu.tensor_from(&[448.0, 1e9, -0.01].map(<F8E4M3 as Element>::from_f64), [3]).unwrap();
    assert_eq!((t.dtype(), t.to_f64_vec().unwrap()), (DType::F8E4M3, vec![448.0, 448.0, -5.0 / 512.0]));
    let t = cpu.tensor_from(&[1e9, -0.3].map(<F8E5M2 as Element>::from_f64), [2]).unwrap();
    assert_eq!((t.dtype(), t.to_f64_vec().unwrap()), (DType::F8E5M2, vec![57_344.0, -0.3125]));
    let mut t = Tensor::zeros(&cpu, DType::F32, [2]).unwrap();
    t.copy_from(&[3.0_f32, 4.0]).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [3.0, 4.0]);
}

#[test]
fn mistakes_are_named() {
    let t = counted(&[2, 3]);
    assert_eq!(message(t.slice(1, 2..4)), "error[ATL631]: slice 2..4 of axis 1, which has size 3");
    assert_eq!(
        message(t.as_strided([2, 2], [3, 2], 1)),
        "error[ATL631]: a view of shape [2, 2] with strides [3, 2] from element 1 does not lie within 6 elements"
    );
    let last = counted(&[2, 3]).as_strided([2, 2], [3, 1], 1).unwrap();
    assert_eq!(last.to_vec::<f32>().unwrap(), t.slice(1, 1..3).unwrap().to_vec::<f32>().unwrap());
    assert!(t.as_strided([2], [1, 1], 0).is_err() && t.as_strided([usize::MAX, 3], [0, 0], 0).is_err());
    assert!(t.as_strided([2], [usize::MAX], 3).is_err() && t.as_strided([0], [9], 6).is_ok());
    assert_eq!(message(t.transpose(0, 2)), "error[ATL632]: axis 2 of a tensor of rank 2");
    let rows = counted(&[3, 4]).slice(0, 1..3).unwrap();
    let halves = rows.split(1, 2).unwrap();
    assert_eq!(halves.shape(), [2, 2, 2]);
    assert_eq!(halves.to_vec::<f32>().unwrap(), rows.to_vec::<f32>().unwrap());
    assert!(t.split(1, 2).is_err() && t.split(1, 0).is_err() && t.split(2, 1).is_err());
    assert_eq!(message(t.permute([0, 0])), "error[ATL633]: [0, 0] does not name each axis of a tensor of rank 2 once");
    assert_eq!(
        message(t.expand([4, 3])),
        "error[ATL634]: a tensor of shape [2, 3] does not expand to [4, 3]: an axis keeps its size, or has size 1"
    );
    assert_eq!(
        message(t.reshape([7])),
        "error[ATL635]: a tensor of shape [2, 3] has another number of elements than [7]"
    );
    assert_eq!(
        message(t.transpose(0, 1).unwrap().reshape([6])),
        "error[ATL635]: a view of shape [3, 2] with strides [1, 3] is not contiguous; copy it first with `contiguous()`"
    );
    assert_eq!(message(t.to_vec::<i32>()), "error[ATL636]: the tensor holds f32, but it is read or written as i32");
    assert_eq!(
        message(Device::cpu().tensor_from(&[1.0_f32], [2, 3])),
        "error[ATL630]: the number of elements given for a tensor of shape [2, 3] is 1"
    );
    assert_eq!(
        message(Tensor::zeros(&Device::cpu(), DType::F32, [1 << 40, 1 << 40])),
        "error[ATL637]: a tensor of shape [1099511627776, 1099511627776] has more bytes than an address space"
    );
    assert_eq!(
        message(Tensor::zeros(&Device::cpu(), DType::F32, [1 << 58])),
        "error[ATL638]: cpu has no 1152921504606846976 bytes of free memory; drop tensors, or use a smaller problem"
    );
    assert_eq!(
        message(Tensor::zeros(&Device::cpu(), DType::Bool, [1])),
        "error[ATL639]: a tensor cannot hold bool: it exists only inside kernels; make it u8"
    );
}

/// Beside an axis of size 0 the others may have any size. Debug builds check the arithmetic.
#[test]
fn views_without_elements_have_any_sizes() {
    let cpu = Device::cpu();
    let large = 1_usize << 40;
    for shape in
        [vec![0, large, large], vec![large, large, 0], vec![large, 0, large], vec![usize::MAX, 0, usize::MAX, 2]]
    {
        let t = Tensor::zeros(&cpu, DType::F32, &shape).unwrap();
        let rank = shape.len();
        let turned = t.transpose(0, rank - 1).unwrap();
        for t in [&t, &turned, &t.expand([&[3], &shape[..]].concat()).unwrap(), &t.reshape([0]).unwrap()] {
            assert_eq!((t.len(), t.is_contiguous(), t.is_empty()), (0, true, true), "{shape:?}");
            assert!(t.to_vec::<f32>().unwrap().is_empty() && t.to_f64_vec().unwrap().is_empty());
            assert!(t.address_range().is_empty() && t.contiguous().unwrap().is_empty());
            assert_eq!(t.to_device(&cpu).unwrap().shape(), t.shape());
            for axis in 0..t.rank() {
                let size = t.shape()[axis];
                for range in [0..0, size..size, size / 2..size, size.min(5)..size.min(6)] {
                    let part = t.slice(axis, range.clone()).unwrap();
                    assert_eq!((part.len(), part.shape()[axis]), (0, range.end - range.start));
                    assert_eq!(part.address(), t.address(), "nothing starts anywhere");
                }
                assert_eq!(t.split(axis, size.max(1)).unwrap().len(), 0);
            }
        }
        assert_eq!(t.as_strided([0, large], [usize::MAX, usize::MAX], 0).unwrap().len(), 0);
    }
    let one = Tensor::zeros(&cpu, DType::F32, [1, 1]).unwrap();
    assert_eq!(one.expand([0, large, large]).unwrap().len(), 0);
    let one = Tensor::zeros(&cpu, DType::F32, [1, 1, 0]).unwrap();
    assert_eq!(one.expand([1 << 33, 1 << 33, 0]).unwrap().to_vec::<f32>().unwrap(), [0.0; 0]);
}

#[test]
fn an_axis_is_split_by_what_divides_it_alone() {
    let t = counted(&[4, 8]);
    for size in [0, 3, 5, 1 << 62, usize::MAX] {
        let text = message(t.split(0, size));
        let want = format!("error[ATL635]: axis 0 has size 4, which is no multiple of {size}: `split(axis, size)`");
        assert!(text.starts_with(&want), "{text}");
    }
    // A view without elements: its size divides by any size, and no stride is used.
    let none = Tensor::zeros(&Device::cpu(), DType::F32, [8, 0, 8]).unwrap();
    for size in [1, 7, 1 << 62, usize::MAX] {
        assert_eq!(none.split(1, size).unwrap().shape(), [8, 0, size, 8]);
    }
}

/// A view may have more elements than there is memory. Copying it is an error, and does not abort the process.
#[test]
fn what_repeats_beyond_memory_is_refused_where_it_is_copied() {
    let t = counted(&[1, 4]).expand([1 << 50, 4]).unwrap();
    let want = "error[ATL638]: cpu has no";
    let refusals = [
        message(t.to_vec::<f32>()),
        message(t.to_f64_vec()),
        message(t.to_device(&Device::cpu())),
        message(t.contiguous()),
    ];
    for text in refusals {
        assert!(text.starts_with(want), "{text}");
    }
    assert_eq!(t.slice(0, 7..9).unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0]);
}
