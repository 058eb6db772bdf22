//! The grid of a launch, and the parameters of the compiled kernel's `.entry`.
//!
//! The calling convention is data, [`KernelImage`]: its list of parameters is matched with a bound launch once, when
//! the launch is planned. Each launch then only adds the addresses of its tensors and its numbers.

use super::args::Arg;
use super::bind::{BoundArg, BoundLaunch, scalar_bits};
use super::problem::launch_strides;
use crate::cost::programs;
use crate::device::{Device, GpuLaunch, KernelLaunch, LaunchBody, LaunchParam, LaunchTensor};
use crate::error::{LaunchError, Result};
use crate::gpu::{BoundMap, LoadedKernel, SCRATCH_ALIGN, ScratchAddresses, ScratchBytes};
use atlas_codegen::packing::Workspace;
use atlas_codegen::{AbiParam, KernelImage, TensorMapData};
use atlas_dsl::{DType, KernelDef, Param};
use std::ops::Range;
use std::sync::Arc;

/// The launch body of loaded kernels for one problem.
pub(crate) fn gpu_body(device: &Device, bound: &BoundLaunch, loaded: LoadedLaunch) -> Result<LaunchBody> {
    let workspaces = BoundWorkspaces::of(bound, &loaded.workspaces)?;
    let launch = |kernel: Arc<LoadedKernel>, fills: &[Param]| -> Result<KernelLaunch> {
        let resident = kernel.facts.resident_ctas.map(|each| u64::from(each) * u64::from(device.sm_count()));
        let grid = grid_size(bound, &kernel.image, resident)?;
        let params = launch_params(bound, &workspaces, &kernel.image)?;
        let maps = launch_maps(bound, &workspaces, &kernel.image)?;
        Ok(KernelLaunch { kernel, grid, params, maps, fills: workspaces.ranges(fills) })
    };
    let main = launch(loaded.kernel, &[])?;
    if main.grid == 0 {
        return Ok(LaunchBody::Empty);
    }
    let packers = loaded.packers.into_iter().map(|packer| launch(packer.kernel, &packer.fills));
    let mut packers = packers.collect::<Result<Vec<_>>>()?;
    // An operand without elements leaves its workspace as it is, and nothing reads it.
    packers.retain(|packer| packer.grid > 0);
    let of_splits = ScratchBytes::of(&main.kernel.image, main.grid);
    let scratch = match workspaces.bytes {
        0 => of_splits,
        bytes => Some(of_splits.unwrap_or_default().with_workspaces(bytes)),
    };
    Ok(LaunchBody::Gpu(GpuLaunch { main, packers, scratch }))
}

/// The loaded kernels of a launch.
pub(crate) struct LoadedLaunch {
    pub(crate) kernel: Arc<LoadedKernel>,
    /// What runs before it, to fill the workspaces.
    pub(crate) packers: Vec<LoadedPacker>,
    pub(crate) workspaces: Vec<Workspace>,
}

/// A loaded kernel that fills workspaces.
pub(crate) struct LoadedPacker {
    pub(crate) kernel: Arc<LoadedKernel>,
    /// The workspaces that it writes.
    pub(crate) fills: Vec<Param>,
}

impl From<Arc<LoadedKernel>> for LoadedLaunch {
    fn from(kernel: Arc<LoadedKernel>) -> LoadedLaunch {
        LoadedLaunch { kernel, packers: Vec::new(), workspaces: Vec::new() }
    }
}

/// The workspaces of a launch: parameters after those of the signature.
#[derive(Default)]
pub(crate) struct BoundWorkspaces {
    tensors: Vec<(Param, BoundTensor)>,
    /// Their size in bytes.
    bytes: u64,
}

/// A tensor of a launch, but for its address.
#[derive(Clone)]
struct BoundTensor {
    place: LaunchTensor,
    dtype: DType,
    sizes: Vec<u64>,
    strides: Vec<i64>,
}

impl BoundTensor {
    /// The byte at which a workspace begins.
    fn begins(&self) -> u64 {
        match self.place {
            LaunchTensor::Workspace(offset) => offset,
            LaunchTensor::Argument(_) => 0,
        }
    }
}

impl BoundWorkspaces {
    /// The workspaces of a problem, one behind the other.
    fn of(bound: &BoundLaunch, workspaces: &[Workspace]) -> std::result::Result<BoundWorkspaces, LaunchError> {
        let mut all = BoundWorkspaces::default();
        for w in workspaces {
            let Some(BoundArg::Tensor { tensor, .. }) = bound.args().get(w.of.as_u32() as usize) else {
                return Err(LaunchError::WrongAbi { kernel: bound.def().name.to_owned() });
            };
            let sizes: Vec<u64> = tensor.shape().iter().map(|&n| n as u64).collect();
            let (place, strides) = (LaunchTensor::Workspace(all.bytes), w.strides(&sizes));
            let bytes = w.bytes(&sizes).checked_next_multiple_of(SCRATCH_ALIGN).unwrap_or(u64::MAX);
            all.bytes = all.bytes.saturating_add(bytes);
            all.tensors.push((w.param, BoundTensor { place, dtype: w.dtype, sizes, strides }));
        }
        Ok(all)
    }

    /// The bytes of some workspaces, in their order.
    fn ranges(&self, of: &[Param]) -> Vec<Range<u64>> {
        let ends = self.tensors.iter().skip(1).map(|(_, t)| t.begins()).chain([self.bytes]);
        let all = self.tensors.iter().zip(ends).filter(|((param, _), _)| of.contains(param));
        all.map(|((_, t), end)| t.begins()..end).collect()
    }

    /// A tensor of the launch: an argument or a workspace.
    fn tensor(&self, bound: &BoundLaunch, p: Param) -> Option<BoundTensor> {
        let index = p.as_u32() as usize;
        match bound.args().get(index) {
            Some(BoundArg::Tensor { tensor, .. }) => Some(BoundTensor {
                place: LaunchTensor::Argument(index),
                dtype: tensor.dtype(),
                sizes: tensor.shape().iter().map(|&n| n as u64).collect(),
                strides: launch_strides(tensor),
            }),
            Some(BoundArg::Scalar { .. }) => None,
            None => self.tensors.iter().find(|(param, _)| *param == p).map(|(_, t)| t.clone()),
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
    check_grid(bound.def().name, programs, image.splits)?;
    // Persistent CTAs are at most as many as programs.
    Ok(image.ctas(programs, resident) as u32)
}

/// Fails if a launch may not have this many programs, or not as many CTAs, if `splits` of them share each program.
///
/// # Errors
/// [`LaunchError::GridTooLarge`] or [`LaunchError::TooManyCtas`].
pub fn check_grid(kernel: &'static str, programs: u64, splits: u32) -> std::result::Result<(), LaunchError> {
    let fits = |n: u64| i32::try_from(n).is_ok();
    let ctas = programs.saturating_mul(splits.into());
    if !fits(programs) {
        Err(LaunchError::GridTooLarge { kernel, programs })
    } else if !fits(ctas) {
        Err(LaunchError::TooManyCtas { kernel, ctas, splits, programs })
    } else {
        Ok(())
    }
}

/// The parameters of the `.entry` for one problem, as a plan keeps them.
pub(crate) fn launch_params(
    bound: &BoundLaunch,
    workspaces: &BoundWorkspaces,
    image: &KernelImage,
) -> std::result::Result<Vec<LaunchParam>, LaunchError> {
    let wrong = || LaunchError::WrongAbi { kernel: image.entry.clone() };
    let arg = |index: u32| bound.args().get(index as usize).ok_or_else(wrong);
    let tensor = |p: Param| workspaces.tensor(bound, p).ok_or_else(wrong);
    let param = |declared: &AbiParam| match *declared {
        AbiParam::Ptr(p) => Ok(LaunchParam::Address(tensor(p)?.place)),
        AbiParam::Dim(d) => bound.dims().get(d.as_u32() as usize).map(|&n| LaunchParam::Bits(n)).ok_or_else(wrong),
        AbiParam::Stride(p, axis) => {
            tensor(p)?.strides.get(usize::from(axis)).map(|&s| LaunchParam::Bits(s as u64)).ok_or_else(wrong)
        }
        AbiParam::Scalar(p) => match arg(p.as_u32())? {
            BoundArg::Scalar { dtype, .. } => Ok(LaunchParam::Number(p.as_u32() as usize, *dtype)),
            BoundArg::Tensor { .. } => Err(wrong()),
        },
        AbiParam::GridCount(axis) => {
            image.grid.get(usize::from(axis)).map(|&g| LaunchParam::Bits(g.count(bound.dims()))).ok_or_else(wrong)
        }
        AbiParam::TensorMap(n) => {
            let map = image.maps.get(usize::from(n)).ok_or_else(wrong)?;
            Ok(LaunchParam::Map(n, tensor(map.param)?.place))
        }
        AbiParam::Arrivals if image.splits > 1 => Ok(LaunchParam::Arrivals),
        AbiParam::Partials if image.splits > 1 => Ok(LaunchParam::Partials),
        AbiParam::Arrivals | AbiParam::Partials => Err(wrong()),
    };
    image.params.iter().map(param).collect()
}

/// The tensor maps of an image for one problem, but for addresses.
pub(crate) fn launch_maps(
    bound: &BoundLaunch,
    workspaces: &BoundWorkspaces,
    image: &KernelImage,
) -> std::result::Result<Vec<BoundMap>, LaunchError> {
    let wrong = || LaunchError::WrongAbi { kernel: image.entry.clone() };
    let map = |map: &TensorMapData| {
        let t = workspaces.tensor(bound, map.param).ok_or_else(wrong)?;
        BoundMap::new(map, t.dtype, &t.sizes, &t.strides).ok_or_else(wrong)
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
        LaunchParam::Address(LaunchTensor::Workspace(offset))
        | LaunchParam::Map(_, LaunchTensor::Workspace(offset)) => Ok(scratch.workspaces + offset),
        LaunchParam::Address(LaunchTensor::Argument(i)) | LaunchParam::Map(_, LaunchTensor::Argument(i)) => {
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
        assert_eq!(error, LaunchError::TooManyCtas { kernel: "row", ctas: 9 << 30, splits: 1 << 30, programs: 9 });
        let error = grid_size(&bound(1 << 20, 1 << 15), &split(2), None).unwrap_err();
        assert_eq!(error, LaunchError::GridTooLarge { kernel: "row", programs: 1 << 31 });
        let error = grid_size(&bound(1 << 20, 1 << 14), &split(2), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL617]: `row` needs 2147483648 CTAs for this problem, 2 for each of 1073741824 programs; one launch \
             has at most 2147483647: use larger tiles or a smaller `split_k`"
        );
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
        assert_eq!(launch_params(&bound(3, 5), &BoundWorkspaces::default(), &image(&fits)).unwrap().len(), 4);
        let split = KernelImage { splits: 2, ..image(&[AbiParam::Partials, AbiParam::Arrivals]) };
        let params = launch_params(&bound(3, 5), &BoundWorkspaces::default(), &split).unwrap();
        assert_eq!(params, [LaunchParam::Partials, LaunchParam::Arrivals]);
        let scratch = ScratchAddresses { arrivals: 16, partials: 256, workspaces: 0 };
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
            let Err(error) = launch_params(&bound(3, 5), &BoundWorkspaces::default(), &image(&[wrong])) else {
                panic!("{wrong:?} is accepted")
            };
            let want = "error[ATL619]: the compiled kernel `row` does not fit its signature; this is a bug of Atlas";
            assert_eq!(error.to_string(), want);
        }
    }
}
