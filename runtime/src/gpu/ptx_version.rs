//! Which PTX a driver accepts: versions of CUDA and the version of PTX that came with each.

use super::driver::cuda_version_text;
use crate::error::LaunchError;
use atlas_codegen::KernelImage;

/// Refuses a kernel whose PTX is too new for the driver. The error names both versions and the driver that suffices.
pub(super) fn check_ptx_version(image: &KernelImage, driver: i32) -> std::result::Result<(), LaunchError> {
    let highest = highest_ptx(driver);
    if image.ptx_version <= highest {
        return Ok(());
    }
    let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    Err(LaunchError::PtxTooNew {
        kernel: image.entry.clone(),
        ptx: text(image.ptx_version),
        driver: cuda_version_text(driver),
        highest: text(highest),
        mend: lowest_cuda(image.ptx_version).map_or_else(|| "a later version".to_owned(), cuda_version_text),
    })
}

/// CUDA versions, each with the PTX version that it introduced.
const PTX_OF_CUDA: [(i32, (u32, u32)); 20] = [
    (11_010, (7, 1)),
    (11_020, (7, 2)),
    (11_030, (7, 3)),
    (11_040, (7, 4)),
    (11_050, (7, 5)),
    (11_060, (7, 6)),
    (11_070, (7, 7)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_070, (8, 6)),
    (12_080, (8, 7)),
    (12_090, (8, 8)),
    (13_000, (9, 0)),
    (13_010, (9, 1)),
    (13_020, (9, 2)),
];

/// The highest PTX version that a driver accepts. CUDA versions after the end of the table get its last entry.
fn highest_ptx(driver: i32) -> (u32, u32) {
    PTX_OF_CUDA.iter().rev().find(|(cuda, _)| *cuda <= driver).map_or((7, 0), |&(_, ptx)| ptx)
}

/// The lowest CUDA version whose driver accepts a PTX version.
fn lowest_cuda(ptx: (u32, u32)) -> Option<i32> {
    PTX_OF_CUDA.iter().find(|(_, p)| *p >= ptx).map(|&(cuda, _)| cuda)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(ptx_version: (u32, u32)) -> KernelImage {
        KernelImage { ptx_version, ..crate::compile::empty_image() }
    }

    #[test]
    fn a_driver_takes_what_its_cuda_version_brought() {
        assert_eq!(check_ptx_version(&image((7, 8)), 11_080), Ok(()));
        assert_eq!(check_ptx_version(&image((8, 5)), 12_060), Ok(()));
        assert_eq!(check_ptx_version(&image((9, 0)), 13_990), Ok(()));
    }

    #[test]
    fn an_old_driver_is_named_with_its_mend() {
        let error = check_ptx_version(&image((8, 3)), 12_020).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL618]: `axpy` is PTX 8.3, but this driver (CUDA 12.2) takes PTX up to 8.2; \
             update the driver to one for CUDA 12.3 or later"
        );
    }

    #[test]
    fn the_table_rises() {
        assert!(PTX_OF_CUDA.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
    }
}
