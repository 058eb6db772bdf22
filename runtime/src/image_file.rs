//! A compiled kernel as bytes: magic, format version, checksum, then lines of text and the PTX.

use atlas_codegen::{AbiParam, KernelImage, Target};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Dim, Param};
use sha2::{Digest, Sha256};
use std::fmt;

const MAGIC: &[u8; 8] = b"ATLASKRN";
/// Raised when the meaning of the fields changes; files of another version are not read.
const VERSION: u32 = 2;
const HEADER: usize = MAGIC.len() + 4 + 32;

/// Why bytes are not a compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFileError {
    /// Too short, or another kind of file.
    NotAnImage,
    /// Another version of the format.
    OtherVersion(u32),
    /// The checksum does not match: the file is damaged.
    Damaged,
    /// The checksum matches, but the content does not decode.
    Undecodable,
}

impl fmt::Display for ImageFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageFileError::NotAnImage => write!(f, "not a compiled kernel"),
            ImageFileError::OtherVersion(v) => write!(f, "format version {v}, wanted {VERSION}"),
            ImageFileError::Damaged => write!(f, "the checksum does not match"),
            ImageFileError::Undecodable => write!(f, "the content does not decode"),
        }
    }
}

impl std::error::Error for ImageFileError {}

/// The bytes of a compiled kernel.
pub fn encode(image: &KernelImage) -> Vec<u8> {
    let payload = head(image) + &image.ptx;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&Sha256::digest(&payload));
    bytes.extend_from_slice(payload.as_bytes());
    bytes
}

/// All but the PTX: a line for each field, then an empty one.
fn head(image: &KernelImage) -> String {
    let params = image.params.iter().map(|p| match *p {
        AbiParam::Ptr(p) => format!(" ptr:{}", p.as_u32()),
        AbiParam::Dim(d) => format!(" dim:{}", d.as_u32()),
        AbiParam::Stride(p, axis) => format!(" stride:{}:{axis}", p.as_u32()),
        AbiParam::Scalar(p) => format!(" scalar:{}", p.as_u32()),
        AbiParam::GridCount(axis) => format!(" count:{axis}"),
    });
    let grid = image.grid.iter().map(|g| match *g {
        GridExtent::Points(d) => format!(" points:{}", d.as_u32()),
        GridExtent::Tiles { dim, size } => format!(" tiles:{}:{size}", dim.as_u32()),
    });
    let KernelImage { entry, target, ptx_version: (major, minor), threads, shared_bytes, .. } = image;
    format!(
        "entry {entry}\ntarget {target}\nptx {major}.{minor}\nthreads {threads}\nshared {shared_bytes}\n\
         params{}\ngrid{}\n\n",
        params.collect::<String>(),
        grid.collect::<String>()
    )
}

/// The inverse of [`encode`].
///
/// # Errors
/// [`ImageFileError`]: what is wrong with the bytes.
pub fn decode(bytes: &[u8]) -> Result<KernelImage, ImageFileError> {
    let (magic, rest) = bytes.split_at_checked(MAGIC.len()).ok_or(ImageFileError::NotAnImage)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(ImageFileError::NotAnImage)?;
    let (checksum, payload) = rest.split_first_chunk::<32>().ok_or(ImageFileError::NotAnImage)?;
    if magic != MAGIC {
        return Err(ImageFileError::NotAnImage);
    }
    match u32::from_le_bytes(*version) {
        VERSION => {}
        other => return Err(ImageFileError::OtherVersion(other)),
    }
    if Sha256::digest(payload)[..] != checksum[..] {
        return Err(ImageFileError::Damaged);
    }
    std::str::from_utf8(payload).ok().and_then(read).ok_or(ImageFileError::Undecodable)
}

/// The inverse of [`head`], and the PTX behind it.
fn read(payload: &str) -> Option<KernelImage> {
    let (head, ptx) = payload.split_once("\n\n")?;
    let mut lines = head.lines();
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix([' ']).or(Some(""));
    let image = KernelImage {
        entry: field("entry")?.to_owned(),
        target: parse_target(field("target")?)?,
        ptx_version: {
            let (major, minor) = field("ptx")?.split_once('.')?;
            (major.parse().ok()?, minor.parse().ok()?)
        },
        threads: field("threads")?.parse().ok()?,
        shared_bytes: field("shared")?.parse().ok()?,
        params: field("params")?.split_whitespace().map(param).collect::<Option<_>>()?,
        grid: field("grid")?.split_whitespace().map(extent).collect::<Option<_>>()?,
        ptx: ptx.to_owned(),
    };
    lines.next().is_none().then_some(image)
}

/// `stride:0:1`.
fn param(text: &str) -> Option<AbiParam> {
    let (kind, rest) = text.split_once(':')?;
    Some(match kind {
        "ptr" => AbiParam::Ptr(Param::from_u32(rest.parse().ok()?)),
        "dim" => AbiParam::Dim(Dim::from_u32(rest.parse().ok()?)),
        "stride" => {
            let (param, axis) = rest.split_once(':')?;
            AbiParam::Stride(Param::from_u32(param.parse().ok()?), axis.parse().ok()?)
        }
        "scalar" => AbiParam::Scalar(Param::from_u32(rest.parse().ok()?)),
        "count" => AbiParam::GridCount(rest.parse().ok()?),
        _ => return None,
    })
}

/// `points:0` or `tiles:1:64`.
fn extent(text: &str) -> Option<GridExtent> {
    let (kind, rest) = text.split_once(':')?;
    Some(match kind {
        "points" => GridExtent::Points(Dim::from_u32(rest.parse().ok()?)),
        "tiles" => {
            let (dim, size) = rest.split_once(':')?;
            GridExtent::Tiles { dim: Dim::from_u32(dim.parse().ok()?), size: size.parse().ok()? }
        }
        _ => return None,
    })
}

/// `sm_90` or `sm_90a`, whether or not this build lowers for it.
fn parse_target(text: &str) -> Option<Target> {
    let digits = text.strip_prefix("sm_")?;
    let (digits, specific) = digits.strip_suffix('a').map_or((digits, false), |d| (d, true));
    Some(Target { sm: digits.parse().ok()?, specific })
}
