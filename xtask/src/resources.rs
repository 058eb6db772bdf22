//! The committed table of the resources of each shipped kernel, and its comparison with a new one.

use crate::ptxas::Report;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;

/// The name of a compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kernel: String,
    pub(crate) arch: String,
    pub(crate) dtype: String,
    pub(crate) config: String,
}

impl Key {
    /// Parses `KERNEL.DTYPE.CONFIG.ARCH.ptx`.
    pub(crate) fn from_file_name(file: &str) -> Result<Key> {
        let stem = file.strip_suffix(".ptx").context("the name does not end in .ptx")?;
        let parts: Vec<&str> = stem.split('.').collect();
        let [kernel, dtype, config, arch] = parts[..] else {
            bail!("the name is not KERNEL.DTYPE.CONFIG.ARCH.ptx");
        };
        Ok(Key { kernel: kernel.into(), arch: arch.into(), dtype: dtype.into(), config: config.into() })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.kernel, self.arch, self.dtype, self.config)
    }
}

/// The numbers of a row, in the order of [`COLUMNS`].
type Numbers = [u32; 4];

const COLUMNS: [&str; 4] = ["registers", "stack", "shared", "barriers"];

/// What is known of a kernel without faults: its resources, and a digest of what they were found with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    numbers: Numbers,
    /// Of the PTX, the shared memory that the launch requests, and the tools.
    digest: String,
}

/// One kernel and its resources.
pub(crate) struct Row {
    key: Key,
    known: Known,
}

impl Row {
    /// A row from ptxas's report and the shared memory that the launch requests.
    pub(crate) fn new(key: Key, report: &Report, dynamic_shared: u32, digest: String) -> Row {
        let numbers = [report.registers, report.stack, report.shared + dynamic_shared, report.barriers];
        Row { key, known: Known { numbers, digest } }
    }
}

/// Rows by key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table(BTreeMap<Key, Known>);

const HEADER: [&str; 9] = ["kernel", "arch", "dtype", "config", "registers", "stack", "shared", "barriers", "digest"];

impl Table {
    pub(crate) fn new(rows: Vec<Row>) -> Table {
        Table(rows.into_iter().map(|r| (r.key, r.known)).collect())
    }

    /// The row of a kernel, if it was found with the same.
    pub(crate) fn row(&self, key: &Key, digest: &str) -> Option<Row> {
        let known = self.0.get(key).filter(|known| known.digest == digest)?;
        Some(Row { key: key.clone(), known: known.clone() })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Parses the output of [`Table`]'s `Display`.
    pub(crate) fn parse(text: &str) -> Result<Table> {
        let mut rows = BTreeMap::new();
        for (n, line) in text.lines().enumerate().skip(1).filter(|(_, l)| !l.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [kernel, arch, dtype, config, numbers @ .., digest] = &words[..] else {
                bail!("line {}: too few columns", n + 1);
            };
            let numbers: Vec<u32> = numbers
                .iter()
                .map(|w| w.parse())
                .collect::<Result<_, _>>()
                .with_context(|| format!("line {}", n + 1))?;
            let numbers: Numbers =
                numbers.try_into().map_err(|_| anyhow::anyhow!("line {}: not {} numbers", n + 1, COLUMNS.len()))?;
            let key = Key {
                kernel: (*kernel).into(),
                arch: (*arch).into(),
                dtype: (*dtype).into(),
                config: (*config).into(),
            };
            if rows.insert(key, Known { numbers, digest: (*digest).to_owned() }).is_some() {
                bail!("line {}: a second row for the same kernel", n + 1);
            }
        }
        Ok(Table(rows))
    }

    /// The differences of `found` from this table.
    pub(crate) fn compare(&self, found: &Table) -> Vec<Verdict> {
        let mut out = Vec::new();
        for (key, new) in &found.0 {
            match self.0.get(key) {
                None => out.push(Verdict::New(key.clone())),
                Some(old) if old.numbers != new.numbers => {
                    out.push(Verdict::Changed(key.clone(), old.numbers, new.numbers));
                }
                Some(_) => {}
            }
        }
        out.extend(self.0.keys().filter(|k| !found.0.contains_key(k)).map(|k| Verdict::Gone(k.clone())));
        out
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = HEADER.map(str::to_owned);
        let cells = |(k, known): (&Key, &Known)| {
            let [a, b, c, d] = known.numbers.map(|v| v.to_string());
            [k.kernel.clone(), k.arch.clone(), k.dtype.clone(), k.config.clone(), a, b, c, d, known.digest.clone()]
        };
        let lines: Vec<[String; 9]> = std::iter::once(header).chain(self.0.iter().map(cells)).collect();
        let width = |column: usize| lines.iter().map(|l| l[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
        for line in &lines {
            let cells = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(i, (cell, &w))| if i < 4 { format!("{cell:<w$}") } else { format!("{cell:>w$}") });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  "))?;
        }
        Ok(())
    }
}

/// A difference between the recorded and the new table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    New(Key),
    Gone(Key),
    Changed(Key, Numbers, Numbers),
}

impl Verdict {
    /// True if a kernel needs more registers, stack or shared memory than recorded.
    pub(crate) fn is_worse(&self) -> bool {
        matches!(self, Verdict::Changed(_, old, new) if old[..3].iter().zip(&new[..3]).any(|(o, n)| n > o))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::New(key) => write!(f, "new: {key}"),
            Verdict::Gone(key) => write!(f, "gone: {key}"),
            Verdict::Changed(key, old, new) => {
                write!(f, "{}: {key}:", if self.is_worse() { "worse" } else { "changed" })?;
                let mut changed = COLUMNS.iter().zip(old.iter().zip(new)).filter(|(_, (o, n))| o != n);
                changed.try_for_each(|(name, (o, n))| write!(f, " {name} {o} -> {n}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Row, Table, Verdict};
    use crate::ptxas::Report;

    fn row(kernel: &str, registers: u32, shared: u32) -> Row {
        let key = Key::from_file_name(&format!("{kernel}.bf16.BN64-warps4.sm_80.ptx")).unwrap();
        let report = Report { registers, shared, barriers: 1, ..Report::default() };
        Row::new(key, &report, 0, format!("{registers:04x}"))
    }

    #[test]
    fn a_row_is_known_by_what_it_was_found_with() {
        let table = Table::new(vec![row("softmax", 40, 0)]);
        let key = row("softmax", 40, 0).key;
        assert_eq!(table.row(&key, "0028").map(|r| r.known.numbers), Some([40, 0, 0, 1]));
        assert!(table.row(&key, "0029").is_none());
        assert!(table.row(&row("matmul", 40, 0).key, "0028").is_none());
    }

    #[test]
    fn print_and_parse_are_inverse() {
        let table = Table::new(vec![row("softmax", 40, 0), row("memory_read", 168, 65536)]);
        let text = table.to_string();
        assert_eq!(Table::parse(&text).unwrap(), table);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("memory_read  sm_80"), "sorted: {text}");
        assert!(lines.iter().all(|l| l.len() == lines[0].len()), "aligned: {text}");
    }

    #[test]
    fn more_registers_or_shared_memory_is_worse() {
        let old = Table::new(vec![row("a", 40, 1024)]);
        let worse = |new: Row| old.compare(&Table::new(vec![new])).iter().any(Verdict::is_worse);
        assert!(worse(row("a", 41, 1024)));
        assert!(worse(row("a", 39, 1040)), "one better and one worse is worse");
        assert!(!worse(row("a", 39, 1024)));
        assert!(!worse(row("a", 40, 1024)));
    }

    #[test]
    fn every_difference_is_named() {
        let old = Table::new(vec![row("a", 40, 0), row("b", 40, 0)]);
        let new = Table::new(vec![row("a", 39, 0), row("c", 40, 0)]);
        let text: Vec<String> = old.compare(&new).iter().map(Verdict::to_string).collect();
        assert_eq!(text.len(), 3);
        assert!(text[0].contains("changed: a") && text[0].contains("registers 40 -> 39"), "{text:?}");
        assert!(text[1].starts_with("new: c") && text[2].starts_with("gone: b"), "{text:?}");
        assert!(old.compare(&old).is_empty());
    }

    #[test]
    fn broken_tables_and_names_are_refused() {
        for text in
            ["h\na b c", "h\na b c d 1 2 3 e", "h\na b c d 1 2 3 x e", "h\na b c d 1 2 3 4 e\na b c d 1 2 3 4 e"]
        {
            assert!(Table::parse(text).is_err(), "{text}");
        }
        for name in ["a.b.c.ptx", "a.b.c.d", "a.b.c.d.e.ptx"] {
            assert!(Key::from_file_name(name).is_err(), "{name}");
        }
    }
}
