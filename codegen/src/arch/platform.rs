//! What a kernel is compiled for: a target and a machine together.

use super::{Machine, Target};
use std::fmt;
use std::str::FromStr;

/// What a kernel is compiled for: what its code may say, and the limits that its config has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// What code may say.
    pub target: Target,
    /// What the GPU holds.
    pub machine: Machine,
}

impl From<Machine> for Platform {
    fn from(machine: Machine) -> Platform {
        Platform { target: machine.target(), machine }
    }
}

impl From<Target> for Platform {
    /// Exactly that target, on the usual GPU of its generation.
    fn from(target: Target) -> Platform {
        Platform { target, machine: target.into() }
    }
}

impl fmt::Display for Platform {
    /// Its arch: the machine's, or a target that only this machine runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.target.specific { self.target.fmt(f) } else { self.machine.fmt(f) }
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Platform, String> {
        Ok(text.parse::<Machine>()?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_a_machine_or_a_target_of_its_own() {
        let read = |text: &str| text.parse::<Platform>().map(|p| (p.to_string(), p.target.to_string(), p.machine.sm));
        let row = |text: &str, target: &str, sm| Ok((text.to_owned(), target.to_owned(), sm));
        assert_eq!(read("sm_86"), row("sm_86", "sm_80", 86));
        assert_eq!(read("sm_90"), row("sm_90", "sm_90", 90));
        assert_eq!(read("sm_90a"), row("sm_90a", "sm_90a", 90));
        assert_eq!(read("sm_120a"), row("sm_120a", "sm_120a", 120));
        let wrong = read("sm_86a");
        assert!(
            wrong.is_err_and(
                |e| e.starts_with("unknown arch `sm_86a`") && e.ends_with("sm_121, sm_90a, sm_100a, sm_120a")
            )
        );
    }
}
