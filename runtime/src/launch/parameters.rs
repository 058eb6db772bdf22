//! The grid of a launch, and the parameters of the compiled kernel's `.entry`.
//!
//! The calling convention is data, [`KernelImage`]: its list of parameters is matched with a bound launch once, when
//! the launch is planned. Each launch then only adds the addresses of its tensors and its numbers.

use super::args::Arg;
use super::bind::{BoundArg, BoundLaunch, scalar_bits};
use super::problem::launch_strides;
use crate::cost::programs;
use crate::device::{Device, LaunchBody, LaunchParam};
use crate::error::{LaunchError, Result};
use crate::gpu::{BoundMap, LoadedKernel, ScratchAddresses};
use atlas_codegen::{AbiParam, KernelImage, TensorMapData};
use atlas_dsl::KernelDef;
use std::sync::Arc;

/// The launch body of a loaded kernel for one problem.
pub(crate) fn gpu_body(device: &Device, bound: &BoundLaunch, kernel: Arc<LoadedKernel>) -> Result<LaunchBody> {
    let resident = kernel.facts.resident_ctas.map(|each| u64::from(each) * u64::from(device.sm_count()));
    match grid_size(bound, &kernel.image, resident)? {
        0 => Ok(LaunchBody::Empty),
        grid => {
            let params = launch_params(bound, &kernel.image)?;
            let maps = launch_maps(bound, &kernel.image)?;
            Ok(LaunchBody::Gpu { kernel, grid, params, maps })
        }
    }
}

/// The number of CTAs of one launch, on a GPU that holds so many at once or in a simulator.
pub(crate) fn grid_size(
    bound: &BoundLaunch,
    image: &KernelImage,
    resident: Option<u64>,
) -> std::result::Result<u32, LaunchError> {
    let programs = programs(&image.grid, bound.dims());
    let grid = |ctas: u64| {
        let too_many = |_| LaunchError::GridTooLarge { kernel: bound.def().name, programs: ctas };
        i32::try_from(ctas).map(i32::unsigned_abs).map_err(too_many)
    };
    grid(programs)?;
    grid(image.ctas(programs, resident))
}

/// The parameters of the `.entry` for one problem, as a plan keeps them.
pub(crate) fn launch_params(
    bound: &BoundLaunch,
    image: &KernelImage,
) -> std::result::Result<Vec<LaunchParam>, LaunchError> {
    let wrong = || LaunchError::WrongAbi { kernel: image.entry.clone() };
    let arg = |index: u32| bound.args().get(index as usize).ok_or_else(wrong);
    let param = |declared: &AbiParam| match *declared {
        AbiParam::Ptr(p) => match arg(p.as_u32())? {
            BoundArg::Tensor { .. } => Ok(LaunchParam::Address(p.as_u32() as usize)),
            BoundArg::Scalar { .. } => Err(wrong()),
        },
        AbiParam::Dim(d) => bound.dims().get(d.as_u32() as usize).map(|&n| LaunchParam::Bits(n)).ok_or_else(wrong),
        AbiParam::Stride(p, axis) => match arg(p.as_u32())? {
            BoundArg::Tensor { tensor, .. } => {
                launch_strides(tensor).get(usize::from(axis)).map(|&s| LaunchParam::Bits(s as u64)).ok_or_else(wrong)
            }
            BoundArg::Scalar { .. } => Err(wrong()),
        },
        AbiParam::Scalar(p) => match arg(p.as_u32())? {
            BoundArg::Scalar { dtype, .. } => Ok(LaunchParam::Number(p.as_u32() as usize, *dtype)),
            BoundArg::Tensor { .. } => Err(wrong()),
        },
        AbiParam::GridCount(axis) => {
            image.grid.get(usize::from(axis)).map(|&g| LaunchParam::Bits(g.count(bound.dims()))).ok_or_else(wrong)
        }
        AbiParam::TensorMap(n) => {
            let map = image.maps.get(usize::from(n)).ok_or_else(wrong)?;
            Ok(LaunchParam::Map(n, map.param.as_u32() as usize))
        }
        AbiParam::Arrivals if image.splits > 1 => Ok(LaunchParam::Arrivals),
        AbiParam::Partials if image.splits > 1 => Ok(LaunchParam::Partials),
        AbiParam::Arrivals | AbiParam::Partials => Err(wrong()),
    };
    image.params.iter().map(param).collect()
}

/// The tensor maps of an image for one problem, but for addresses.
pub(crate) fn launch_maps(bound: &BoundLaunch, image: &KernelImage) -> std::result::Result<Vec<BoundMap>, LaunchError> {
    let wrong = || LaunchError::WrongAbi { kernel: image.entry.clone() };
    let map = |map: &TensorMapData| match bound.args().get(map.param.as_u32() as usize) {
        Some(BoundArg::Tensor { tensor, .. }) => {
            let sizes: Vec<u64> = tensor.shape().iter().map(|&n| n as u64).collect();
            BoundMap::new(map, tensor.dtype(), &sizes, &launch_strides(tensor)).ok_or_else(wrong)
        }
        Some(BoundArg::Scalar { .. }) | None => Err(wrong()),
    };
    image.maps.iter().map(map).collect()
}

/// The value of a parameter for the arguments and the scratch memory of one launch: of a tensor map, the address of its tensor.
pub(crate) fn param_bits(
    def: &'static KernelDef,
    param: LaunchParam,
    args: &[Arg<'_>],
    scratch: ScratchAddresses,
) -> std::result::Result<u64, LaunchError> {
    match param {
        LaunchParam::Bits(bits) => Ok(bits),
        LaunchParam::Address(i) | LaunchParam::Map(_, i) => {
            args[i].tensor().map(|t| t.address()).ok_or(LaunchError::NotPrepared { kernel: def.name })
        }
        LaunchParam::Arrivals => Ok(scratch.arrivals),
        LaunchParam::Partials => Ok(scratch.partials),
        LaunchParam::Number(i, dtype) => scalar_bits(def.name, def.params[i].name(), dtype, &args[i]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::tensor::Tensor;
    use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
    use atlas_dsl::ir::{Access, GridExtent};
    use atlas_dsl::{DType, Diagnostics, Dim, Param};

    const F32: DTypeRef = DTypeRef::Fixed(DType::F32);
    static ROW: KernelDef = KernelDef {
        name: "row",
        doc: "",
        file: "",
        types: &[],
        dims: &[DimDef { name: "N", whole: false }, DimDef { name: "D", whole: false }],
        params: &[
            ParamDef::Tensor { name: "x", dtype: F32, dims: &[0, 1], access: Access::In },
            ParamDef::Scalar { name: "a", dtype: F32 },
        ],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    };

    fn bound(n: usize, d: usize) -> BoundLaunch {
        let x = Tensor::zeros(&Device::cpu(), DType::F32, [1, 1]).unwrap().expand([n, d]).unwrap();
        BoundLaunch::new(&ROW, &Device::cpu(), &crate::args!(x, 1.0)).unwrap()
    }

    fn image(params: &[AbiParam]) -> KernelImage {
        KernelImage {
            entry: "row".to_owned(),
            params: params.to_vec(),
            grid: vec![GridExtent::Points(Dim::from_u32(0)), GridExtent::Tiles { dim: Dim::from_u32(1), size: 16 }],
            ..crate::compile::empty_image()
        }
    }

    #[test]
    fn one_launch_has_a_most_of_programs() {
        assert_eq!(grid_size(&bound(3, 33), &image(&[]), None), Ok(9));
        assert_eq!(grid_size(&bound(0, 33), &image(&[]), None), Ok(0));
        // A GPU that holds four CTAs, one that holds more than there are programs, and the simulator.
        let persistent = KernelImage { persistent: true, ..image(&[]) };
        let ctas = [Some(4), Some(264), None].map(|resident| grid_size(&bound(3, 33), &persistent, resident));
        assert_eq!(ctas, [Ok(4), Ok(9), Ok(3)]);
        // Several CTAs share each program.
        let split = |splits| KernelImage { splits, ..image(&[]) };
        assert_eq!(grid_size(&bound(3, 33), &split(4), None), Ok(36));
        let error = grid_size(&bound(3, 33), &split(1 << 30), None).unwrap_err();
        assert_eq!(error, LaunchError::GridTooLarge { kernel: "row", programs: 9 << 30 });
        let error = grid_size(&bound(1 << 20, 1 << 15), &image(&[]), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL617]: `row` needs 2147483648 programs for this problem; one launch has at most 2147483647: \
             use larger tiles"
        );
    }

    #[test]
    fn an_image_that_does_not_fit_its_signature_is_refused() {
        let (x, a) = (Param::from_u32(0), Param::from_u32(1));
        let fits = [AbiParam::Ptr(x), AbiParam::Scalar(a), AbiParam::Dim(Dim::from_u32(1)), AbiParam::Stride(x, 1)];
        assert_eq!(launch_params(&bound(3, 5), &image(&fits)).unwrap().len(), 4);
        let split = KernelImage { splits: 2, ..image(&[AbiParam::Partials, AbiParam::Arrivals]) };
        let params = launch_params(&bound(3, 5), &split).unwrap();
        assert_eq!(params, [LaunchParam::Partials, LaunchParam::Arrivals]);
        let scratch = ScratchAddresses { arrivals: 16, partials: 256 };
        let bits = params.iter().map(|&param| param_bits(&ROW, param, &[], scratch));
        assert_eq!(bits.collect::<Vec<_>>(), [Ok(256), Ok(16)]);
        for wrong in [
            AbiParam::Ptr(a),
            AbiParam::Scalar(x),
            AbiParam::Stride(a, 0),
            AbiParam::Stride(x, 2),
            AbiParam::Dim(Dim::from_u32(2)),
            AbiParam::Ptr(Param::from_u32(2)),
            AbiParam::GridCount(2),
            AbiParam::TensorMap(0),
            AbiParam::Arrivals,
            AbiParam::Partials,
        ] {
            let Err(error) = launch_params(&bound(3, 5), &image(&[wrong])) else { panic!("{wrong:?} is accepted") };
            let want = "error[ATL619]: the compiled kernel `row` does not fit its signature; this is a bug of Atlas";
            assert_eq!(error.to_string(), want);
        }
    }
}
