//! What the models learn: to recall pairs, and to continue text.

use super::numbers::Numbers;

/// Tokens `[B T]` and, for each, the token that should follow; -1 where nothing is asked.
pub(crate) struct Batch {
    pub(crate) tokens: Vec<i32>,
    pub(crate) targets: Vec<i32>,
}

/// Pairs of a key and a value, then filler, and questions among the filler: a mark, a key, and the value that belongs to it.
///
/// Tokens are the keys, the values, the filler and the mark.
#[derive(Clone, Copy)]
pub(crate) struct Needle {
    /// Different keys, and as many values.
    pub(crate) keys: usize,
    /// Pairs of a sequence.
    pub(crate) pairs: usize,
}

impl Needle {
    pub(crate) const fn vocabulary(&self) -> usize {
        2 * self.keys + 2
    }

    /// Sequences with a question at every second place or so, or with one question `distance` tokens behind the last pair.
    pub(crate) fn batch(
        &self,
        sequences: usize,
        tokens: usize,
        numbers: &mut Numbers,
        distance: Option<usize>,
    ) -> Batch {
        let (filler, mark) = (2 * self.keys as i32, 2 * self.keys as i32 + 1);
        let mut batch = Batch { tokens: Vec::new(), targets: Vec::new() };
        for _ in 0..sequences {
            let mut keys: Vec<i32> = (0..self.keys as i32).collect();
            for i in 0..self.pairs {
                keys.swap(i, i + numbers.below(self.keys - i));
            }
            let values: Vec<i32> = (0..self.pairs).map(|_| (self.keys + numbers.below(self.keys)) as i32).collect();
            let mut row = vec![filler; tokens];
            let mut targets = vec![-1; tokens];
            for i in 0..self.pairs {
                (row[2 * i], row[2 * i + 1]) = (keys[i], values[i]);
            }
            let after = 2 * self.pairs;
            let places: Vec<usize> = match distance {
                Some(distance) => vec![after + distance],
                None => (after..tokens - 2).step_by(4).filter(|_| numbers.uniform() < 0.5).collect(),
            };
            for place in places {
                let pair = numbers.below(self.pairs);
                (row[place], row[place + 1], row[place + 2]) = (mark, keys[pair], values[pair]);
                targets[place + 1] = values[pair];
            }
            batch.tokens.extend(row);
            batch.targets.extend(targets);
        }
        batch
    }
}

/// The bytes of text files; the last tenth is kept for measuring.
pub(crate) struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// The text of this repository.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn of_repository() -> std::io::Result<Text> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in ["docs/src", "ops/src"] {
            gather(&root.join(folder), &mut files)?;
        }
        files.sort();
        // So that what is kept for measuring is of all kinds.
        let mut numbers = Numbers::new(0);
        for i in (1..files.len()).rev() {
            files.swap(i, numbers.below(i + 1));
        }
        let mut bytes = std::fs::read(root.join("README.md"))?;
        for file in files {
            bytes.extend(std::fs::read(file)?);
        }
        Ok(Text { bytes })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Pieces from anywhere in the part that is learned, or in the part that is kept for measuring.
    pub(crate) fn batch(&self, sequences: usize, tokens: usize, numbers: &mut Numbers, kept: bool) -> Batch {
        let learned = self.bytes.len() / 10 * 9;
        let part = if kept { &self.bytes[learned..] } else { &self.bytes[..learned] };
        let mut batch = Batch { tokens: Vec::new(), targets: Vec::new() };
        for _ in 0..sequences {
            let at = numbers.below(part.len() - tokens);
            batch.tokens.extend(part[at..at + tokens].iter().map(|b| i32::from(*b)));
            batch.targets.extend(part[at + 1..at + tokens + 1].iter().map(|b| i32::from(*b)));
        }
        batch
    }
}

fn gather(folder: &std::path::Path, files: &mut Vec<std::path::PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "md" || e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
