//! The file of a bundle: a header, a table of contents, then sections, each compressed and under a hash of its own.
//!
//! ```text
//! ATLASBND  version: u32  abi: u32  whole: u64               bytes of the file; all numbers are little-endian
//! length: u64  SHA-256                                       of the table of contents
//! table of contents                                          JSON
//! sections                                                   LZ4 blocks, in any order
//! ```
//!
//! Nothing is used before its hash has matched, and nothing is allocated that is larger than the file can contain. A
//! hash finds damage, not malice: whoever can write the file can write its hashes too, and decides what runs, as with
//! any program.

use crate::error::BundleError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"ATLASBND";
/// Raised when the layout of the file or the meaning of its JSON changes.
pub(super) const VERSION: u32 = 3;
/// Raised when the parameters of a compiled kernel, or how it is launched, change their meaning.
pub(super) const ABI: u32 = 1;
const HEADER: usize = MAGIC.len() + 4 + 4 + 8 + 8 + 32;
/// The most bytes of a section after decompression. LZ4 expands one byte to at most 255.
const MOST_RAW: u64 = 256 << 20;
const MOST_RATIO: u64 = 255;
/// The most bytes of all sections after decompression (a section counts as often as it is named), of a section of text,
/// and the most sections.
const MOST_WHOLE: u64 = 1 << 30;
pub(super) const MOST_TEXT: u64 = 16 << 20;
const MOST_SECTIONS: usize = 1 << 16;

/// The little-endian number at offset `at` of a header.
const fn number(header: &[u8], at: usize) -> u64 {
    let (mut n, mut byte) = (0, 8);
    while byte > 0 {
        byte -= 1;
        n = n << 8 | header[at + byte] as u64;
    }
    n
}

/// True if bytes may be a bundle that this version of Atlas reads, and are all of it. Checks only the header: the
/// contents are checked when they are read. The macro that embeds a bundle in a program asks this at compile time.
pub const fn is_whole(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < MAGIC.len() {
        if at >= bytes.len() || bytes[at] != MAGIC[at] {
            return false;
        }
        at += 1;
    }
    bytes.len() >= HEADER
        && number(bytes, 8) == VERSION as u64 | (ABI as u64) << 32
        && number(bytes, 16) <= bytes.len() as u64
}

/// The position of a section, counted from the end of the table of contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    at: u64,
    length: u64,
    raw: u64,
    sha256: String,
}

impl Section {
    pub(super) fn hash(&self) -> &str {
        &self.sha256
    }
}

/// The table of contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    /// What made the bundle: Atlas, its code generator and LLVM.
    pub(super) made_by: String,
    /// For each kernel's name, the section with the JSON of its `KernelEntry`.
    pub(super) kernels: BTreeMap<String, Section>,
    /// Compiled kernels, as `image_file` writes them, and machine code from the driver's assembler.
    pub(super) images: Vec<Section>,
    /// Tuning records, as text.
    pub(super) records: Vec<Section>,
    /// The problems to tune, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problems: Option<Section>,
}

/// The bytes of a bundle and its table of contents.
pub(super) struct BundleFile {
    pub(super) origin: String,
    pub(super) contents: Contents,
    bytes: Cow<'static, [u8]>,
    base: usize,
}

impl BundleFile {
    /// Reads the header and the table of contents, and checks that the file contains every section.
    pub(super) fn read(origin: &str, bytes: Cow<'static, [u8]>) -> Result<BundleFile, BundleError> {
        let wrong = |message: &str| BundleError { origin: origin.to_owned(), message: message.to_owned() };
        let cut_off = || wrong("it is cut off; copy it anew");
        if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
            return Err(wrong("it is no bundle"));
        }
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or_else(cut_off)?;
        let (version, abi) = (number(header, 8) as u32, (number(header, 8) >> 32) as u32);
        if version != VERSION || abi != ABI {
            let message = format!(
                "it has format {version} for ABI {abi}, and this program reads format {VERSION} for ABI {ABI}; \
                 make it with the `atlas bundle` of this program's version"
            );
            return Err(wrong(&message));
        }
        if number(header, 16) > bytes.len() as u64 {
            return Err(cut_off());
        }
        let length = usize::try_from(number(header, 24)).map_err(|_| cut_off())?;
        let text = rest.get(..length).ok_or_else(cut_off)?;
        if Sha256::digest(text)[..] != header[32..HEADER] {
            return Err(wrong("its table of contents is damaged; copy it anew"));
        }
        let contents: Contents = serde_json::from_slice(text).map_err(|e| wrong(&format!("its contents: {e}")))?;
        let sections = (rest.len() - length) as u64;
        let all = contents.kernels.values().chain(&contents.images).chain(&contents.records).chain(&contents.problems);
        let (mut whole, mut count) = (0_u64, 0);
        for s in all {
            (whole, count) = (whole.saturating_add(s.raw), count + 1);
            if whole > MOST_WHOLE || count > MOST_SECTIONS {
                let most = MOST_WHOLE >> 20;
                return Err(wrong(&format!("it says that it has more than {most} MiB or {MOST_SECTIONS} parts")));
            }
            if s.at.checked_add(s.length).is_none_or(|end| end > sections) {
                return Err(cut_off());
            }
            if s.raw > MOST_RAW || s.raw > s.length.saturating_mul(MOST_RATIO) {
                return Err(wrong("a section says that it is larger than its bytes can be"));
            }
        }
        Ok(BundleFile { origin: origin.to_owned(), contents, base: HEADER + length, bytes })
    }

    pub(super) fn wrong(&self, message: impl Into<String>) -> BundleError {
        BundleError { origin: self.origin.clone(), message: message.into() }
    }

    /// The bytes of a section, checked and decompressed. `what` names it.
    pub(super) fn section(&self, section: &Section, what: &str) -> Result<Vec<u8>, BundleError> {
        self.section_within(section, what, MOST_RAW)
    }

    /// The same for a section of at most `most` bytes.
    pub(super) fn section_within(&self, section: &Section, what: &str, most: u64) -> Result<Vec<u8>, BundleError> {
        if section.raw > most {
            return Err(self.wrong(format!("{what} has {} bytes, and may have {most}", section.raw)));
        }
        // `read` has checked that these are in range.
        let (at, length) = (self.base + section.at as usize, section.length as usize);
        let packed = self.bytes.get(at..at + length).ok_or_else(|| self.wrong("it is cut off; copy it anew"))?;
        if hash(packed) != section.sha256 {
            return Err(self.wrong(format!("{what} is damaged; copy it anew")));
        }
        lz4_flex::block::decompress(packed, section.raw as usize)
            .ok()
            .filter(|raw| raw.len() as u64 == section.raw)
            .ok_or_else(|| self.wrong(format!("{what} does not decompress")))
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sections of a file that is being written. Equal sections are stored once.
#[derive(Default)]
pub(super) struct Sections {
    packed: BTreeMap<String, Vec<u8>>,
}

impl Sections {
    /// Adds a section and returns its description.
    pub(super) fn add(&mut self, raw: &[u8]) -> Section {
        let packed = lz4_flex::block::compress(raw);
        let section = Section { at: 0, length: packed.len() as u64, raw: raw.len() as u64, sha256: hash(&packed) };
        self.packed.insert(section.sha256.clone(), packed);
        section
    }

    /// The bytes of the file, with the sections in the order in which the contents name them.
    pub(super) fn file(&self, mut contents: Contents) -> Vec<u8> {
        let mut sections: Vec<u8> = Vec::new();
        let mut places: BTreeMap<String, u64> = BTreeMap::new();
        let all = contents.kernels.values_mut().chain(&mut contents.images).chain(&mut contents.records);
        let all = all.chain(&mut contents.problems);
        for section in all {
            let here = sections.len() as u64;
            section.at = *places.entry(section.sha256.clone()).or_insert(here);
            if section.at == here {
                sections.extend(self.packed.get(&section.sha256).into_iter().flatten());
            }
        }
        // Numbers and strings always encode.
        let text = serde_json::to_vec(&contents).unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEADER + text.len() + sections.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&ABI.to_le_bytes());
        bytes.extend_from_slice(&((HEADER + text.len() + sections.len()) as u64).to_le_bytes());
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&Sha256::digest(&text));
        bytes.extend_from_slice(&text);
        bytes.extend_from_slice(&sections);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section that is named several times is decompressed each time.
    #[test]
    fn a_file_says_no_more_than_it_may() {
        let mut sections = Sections::default();
        let section = sections.add(&vec![b' '; 1 << 20]);
        let of = |count: usize| Contents { records: vec![section.clone(); count], ..Contents::default() };
        assert!(BundleFile::read("here", sections.file(of(1000)).into()).is_ok());
        let why = BundleFile::read("here", sections.file(of(1025)).into()).map(drop).unwrap_err().to_string();
        assert!(why.contains("more than 1024 MiB or 65536 parts"), "{why}");
        let small = sections.add(b"x");
        let many = Contents { records: vec![small; MOST_SECTIONS + 1], ..Contents::default() };
        assert!(BundleFile::read("here", sections.file(many).into()).is_err());
        // A text may not be as large as code.
        let text = sections.add(&vec![b' '; MOST_TEXT as usize + 1]);
        let file =
            BundleFile::read("here", sections.file(Contents { records: vec![text], ..Contents::default() }).into());
        let file = file.unwrap();
        assert!(file.section_within(&file.contents.records[0], "a record", MOST_TEXT).is_err());
        assert!(file.section(&file.contents.records[0], "a record").is_ok());
    }

    #[test]
    fn a_file_that_is_cut_off_is_no_whole_one() {
        let mut sections = Sections::default();
        let contents = Contents { records: vec![sections.add(&[7; 1000])], ..Contents::default() };
        let bytes = sections.file(contents);
        assert!(is_whole(&bytes));
        assert!(is_whole(&[&bytes[..], b"\n"].concat()));
        for length in 0..bytes.len() {
            assert!(!is_whole(&bytes[..length]), "{length}");
            assert!(BundleFile::read("here", bytes[..length].to_vec().into()).is_err(), "{length}");
        }
        for at in 0..16 {
            let mut other = bytes.clone();
            other[at] ^= 4;
            assert!(!is_whole(&other), "{at}");
        }
    }
}
