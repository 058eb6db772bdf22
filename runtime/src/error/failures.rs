//! Failures of the compiler and of the CUDA driver: no config of a kernel could be compiled, or a call failed.

use atlas_dsl::Config;
use atlas_dsl::diag::Code;
use std::collections::BTreeMap;
use std::fmt;

/// Why no config of a kernel could be compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileFailure {
    /// The kernel's name.
    pub kernel: String,
    /// What went wrong, in one sentence with advice.
    pub message: String,
    /// The configs that were refused, each with its reason.
    pub refused: Vec<(Config, String)>,
    /// False if this build has no compiler at all.
    pub compiler_present: bool,
}

impl CompileFailure {
    /// The stable number of this kind of mistake. If all configs break one rule of the language, it is that of the rule.
    pub fn code(&self) -> Code {
        let rule = match &self.groups(MOST_REASONS)[..] {
            [only] => only.reason.strip_prefix("error[ATL").and_then(|rest| rest.get(..3)?.parse().ok()),
            _ => None,
        };
        // A config may have other sizes of tiles, and what cannot be fused may run one after the other.
        let is_rule = |code: &u16| (100..300).contains(code) && ![220, 221, 222, 230, 231].contains(code);
        Code(match rule.filter(is_rule) {
            Some(code) if self.compiler_present => code,
            _ if self.compiler_present => 641,
            _ => 640,
        })
    }

    /// The refused configs, those of one reason together. Reasons that differ in numbers alone are one if there are more than `most`.
    fn groups(&self, most: usize) -> Vec<Group<'_>> {
        let by = |key: &dyn Fn(&str) -> String| {
            let mut groups: Vec<Group<'_>> = Vec::new();
            let mut at = BTreeMap::new();
            for (config, reason) in &self.refused {
                let i = *at.entry(key(reason)).or_insert(groups.len());
                match groups.get_mut(i) {
                    Some(group) => group.configs += 1,
                    None => groups.push(Group { config, reason, configs: 1 }),
                }
            }
            groups
        };
        let exact = by(&str::to_owned);
        if exact.len() > most { by(&without_numbers) } else { exact }
    }
}

/// The most reasons that a message has.
const MOST_REASONS: usize = 10;

/// Configs that are refused for one reason.
struct Group<'f> {
    /// The first of them.
    config: &'f Config,
    reason: &'f str,
    configs: usize,
}

/// A reason without the sizes in it, which differ between configs.
pub(crate) fn without_numbers(reason: &str) -> String {
    let mut kind = String::new();
    for c in reason.chars() {
        // The digits of `f32` and `ATL213` belong to a name, as does `#` here.
        let in_name = kind.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        match c {
            '0'..='9' if kind.ends_with('#') => {}
            '0'..='9' if !in_name => kind.push('#'),
            c => kind.push(c),
        }
    }
    kind
}

impl fmt::Display for CompileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: `{}`: {}", self.code(), self.kernel, self.message)?;
        let prefix = format!("error[{}]: ", self.code());
        let groups = self.groups(MOST_REASONS);
        for Group { config, reason, configs } in groups.iter().take(MOST_REASONS) {
            let more = match configs - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            write!(f, "; config `{config}`{more}: {}", reason.strip_prefix(&prefix).unwrap_or(reason))?;
        }
        match groups.get(MOST_REASONS..).unwrap_or_default() {
            [] => Ok(()),
            rest => {
                let configs: usize = rest.iter().map(|group| group.configs).sum();
                write!(f, "; and {configs} more configs, for {} other reasons", rest.len())
            }
        }
    }
}

/// A CUDA driver call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFailure {
    /// The driver function.
    pub call: &'static str,
    /// The device it was called for.
    pub device: String,
    /// The driver's error number.
    pub status: u32,
    /// The driver's name and text for the error, and its log if it wrote one.
    pub message: String,
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[ATL625]: {} failed on {}: {}", self.call, self.device, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reasons: impl IntoIterator<Item = String>) -> CompileFailure {
        let config = |i: usize| Config::default().with("BN", i as u32 + 1);
        let refused = reasons.into_iter().enumerate().map(|(i, reason)| (config(i), reason)).collect();
        CompileFailure { kernel: "k".into(), message: "no config".into(), refused, compiler_present: true }
    }

    #[test]
    fn each_reason_is_said_once() {
        let same = failure((0..1152).map(|_| "error[ATL302]: too large".to_owned()));
        assert_eq!(
            same.to_string(),
            "error[ATL641]: `k`: no config; config `BN=1 stages=2 warps=4` and 1151 more: error[ATL302]: too large"
        );
        let sizes = failure((0..1152).map(|i| format!("error[ATL302]: {i} bytes of f{}", 32 << (i % 2))));
        let said = sizes.to_string();
        assert!(said.ends_with("config `BN=2 stages=2 warps=4` and 575 more: error[ATL302]: 1 bytes of f64"), "{said}");
        // Few reasons are all said, with their numbers.
        assert!(
            failure((0..3).map(|i| format!("{i} bytes")))
                .to_string()
                .ends_with("; config `BN=3 stages=2 warps=4`: 2 bytes")
        );
        let names = failure((0..12).map(|i| format!("no `d{i}`"))).to_string();
        assert!(names.ends_with("`d9`; and 2 more configs, for 2 other reasons"), "{names}");
    }

    #[test]
    fn a_rule_that_all_configs_break_has_its_code() {
        let broken = failure((0..30).map(|i| format!("error[ATL213]: the same of `tiles(N, {i})`")));
        assert_eq!(
            broken.to_string(),
            "error[ATL213]: `k`: no config; config `BN=1 stages=2 warps=4` and 29 more: the same of `tiles(N, 0)`"
        );
        assert_eq!(failure(["error[ATL231]: fused".to_owned()]).code(), Code(641));
        assert_eq!(failure(["error[ATL302]: a".to_owned(), "error[ATL213]: b".to_owned()]).code(), Code(641));
        assert_eq!(failure([]).code(), Code(641));
    }
}
