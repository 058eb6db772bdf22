//! Why configs of a size have no time: refused, spilled, or lost with the process that ran them.

use atlas_dsl::Config;
use std::cmp::Reverse;
use std::fmt::Display;

/// Different reasons that are shown.
const SHOWN: usize = 3;

/// `; 3 failed (2, such as `BN=64`: its registers spill; ..); 12 are refused here (..)`, the most frequent reasons first. Nothing if there
/// are neither.
pub(super) fn left_out<'a>(
    failed: &[(String, String)],
    refused: impl Iterator<Item = (&'a Config, &'a str)>,
) -> String {
    let refused: Vec<_> = refused.collect();
    let mut text = String::new();
    if !failed.is_empty() {
        text += &format!("; {} failed ({})", failed.len(), reasons(failed.iter().map(|(config, why)| (config, why))));
    }
    if !refused.is_empty() {
        let verb = if refused.len() == 1 { "is" } else { "are" };
        text += &format!(
            "; {} more {verb} refused for this size and GPU ({})",
            refused.len(),
            reasons(refused.into_iter())
        );
    }
    text
}

/// `2, such as `BN=64`: its registers spill; 1, `BN=128`: no answer within 60 s`, of configs with their reasons.
pub(super) fn reasons<C: Display>(all: impl Iterator<Item = (C, impl AsRef<str>)>) -> String {
    let mut counts: Vec<(String, C, usize)> = Vec::new();
    for (config, why) in all {
        match counts.iter_mut().find(|(known, ..)| known == why.as_ref()) {
            Some((.., count)) => *count += 1,
            None => counts.push((why.as_ref().to_owned(), config, 1)),
        }
    }
    // Equally frequent ones stay in their order.
    counts.sort_by_key(|(.., count)| Reverse(*count));
    let text = |(why, config, count): &(String, C, usize)| match count {
        1 => format!("1, `{config}`: {why}"),
        _ => format!("{count}, such as `{config}`: {why}"),
    };
    let mut texts: Vec<String> = counts.iter().take(SHOWN).map(text).collect();
    let others: usize = counts.iter().skip(SHOWN).map(|(.., count)| count).sum();
    if others > 0 {
        texts.push(format!("{others} for other reasons"));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::left_out;
    use atlas_dsl::Config;

    #[test]
    fn the_most_frequent_reasons_come_first() {
        let failed = |whys: &[&str]| -> Vec<(String, String)> {
            whys.iter().enumerate().map(|(i, why)| (format!("BN={i}"), (*why).to_owned())).collect()
        };
        let text = |whys: &[&str]| left_out(&failed(whys), std::iter::empty());
        assert_eq!(text(&[]), "");
        assert_eq!(text(&["a", "b", "b"]), "; 3 failed (2, such as `BN=1`: b; 1, `BN=0`: a)");
        let wanted = "; 6 failed (2, such as `BN=4`: e; 1, `BN=0`: a; 1, `BN=1`: b; 2 for other reasons)";
        assert_eq!(text(&["a", "b", "c", "d", "e", "e"]), wanted);
        let config: Config = "BN=8 stages=2 warps=4".parse().unwrap();
        let refused = left_out(&failed(&["a"]), [(&config, "no room")].into_iter());
        assert_eq!(
            refused,
            format!("; 1 failed (1, `BN=0`: a); 1 more is refused for this size and GPU (1, `{config}`: no room)")
        );
    }
}
