//! GPUs and targets that the user names by their architectures.

use anyhow::{Result, bail};
use atlas_codegen::{Machine, Platform, Target};
use atlas_runtime::Device;

/// The target of the first GPU here.
pub(super) fn of_gpu() -> Option<Target> {
    Device::cuda(0).ok().and_then(|gpu| gpu.target())
}

/// The archs to check if the user names none: the target of the first GPU here, else the targets that run on later GPUs too.
pub(super) fn usual(of_gpu: Option<Target>) -> Vec<String> {
    match of_gpu {
        Some(target) => vec![target.to_string()],
        None => Target::all().iter().map(Target::to_string).collect(),
    }
}

/// The machine of an arch.
pub(super) fn machine(text: &str) -> Result<Machine> {
    text.parse().map_err(|e: String| anyhow::anyhow!("--arch: {e}"))
}

/// The machines of several archs. An arch may occur only once.
pub(super) fn machines(archs: &[String]) -> Result<Vec<Machine>> {
    once("--arch", archs)?;
    archs.iter().map(|text| machine(text)).collect()
}

/// Refuses a list of an option that names something twice.
pub(super) fn once(option: &str, list: &[String]) -> Result<()> {
    if list.iter().any(|one| one.trim().is_empty()) {
        bail!("{option} has nothing before or after a comma");
    }
    match list.iter().enumerate().find(|(at, one)| list[..*at].contains(one)) {
        Some((_, twice)) => bail!("{option} names {twice} twice"),
        None => Ok(()),
    }
}

/// The platform of an arch or of a target's name.
pub(super) fn platform(text: &str) -> Result<Platform> {
    text.parse().map_err(|e: String| anyhow::anyhow!("--arch: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_checked_with_the_code_that_it_runs() {
        assert_eq!(usual(None), ["sm_80", "sm_89", "sm_90"]);
        let of = |major, minor| usual(Target::for_device(major, minor, (12, 8)));
        assert_eq!((of(9, 0), of(8, 6)), (vec!["sm_90a".to_owned()], vec!["sm_80".to_owned()]));
    }
}
