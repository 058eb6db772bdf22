//! A range of sizes of one dim: `N=1..65536`, each twice the previous one.

use anyhow::{Context, Result, bail};
use atlas_runtime::MAX_DIM;
use std::str::FromStr;

/// The user's range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    /// The dim.
    pub(super) dim: String,
    /// The sizes, ascending; the last one is the end of the range.
    pub(super) sizes: Vec<u64>,
}

impl FromStr for Sweep {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Sweep> {
        let parts = || -> Option<(&str, u64, u64)> {
            let (dim, range) = text.split_once('=')?;
            let (first, last) = range.split_once("..")?;
            Some((dim, first.parse().ok()?, last.parse().ok()?))
        };
        let (dim, first, last) =
            parts().with_context(|| format!("`{text}` is not DIM=FIRST..LAST, such as N=1..65536"))?;
        if first == 0 || first > last {
            bail!("`{text}`: sizes rise, from 1 at the least");
        }
        if last > MAX_DIM as u64 {
            bail!("`{text}`: dim `{dim}` is {last}: it may be {MAX_DIM} at the most");
        }
        let mut sizes: Vec<u64> =
            std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(|n| *n < last).collect();
        sizes.push(last);
        Ok(Sweep { dim: dim.to_owned(), sizes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_last() {
        let of = |text: &str| text.parse::<Sweep>().map(|s| (s.dim, s.sizes)).map_err(|e| e.to_string());
        assert_eq!(of("N=1..6"), Ok(("N".to_owned(), vec![1, 2, 4, 6])));
        assert_eq!(of("D=64..64"), Ok(("D".to_owned(), vec![64])));
        for wrong in
            ["N", "N=1", "N=1..", "=..", "N=0..4", "N=5..4", "N=-1..4", "N=1..2147483648", "N=1..99999999999999999999"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
