//! A compiled kernel as bytes: magic, format version, checksum, then JSON.

use super::key::KernelKey;
use atlas_codegen::{AbiParam, KernelImage, MapAxis, Target, TensorMapData};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Dim, Param};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

const MAGIC: &[u8; 8] = b"ATLASKRN";
/// Raised when the meaning of the fields changes. Files of another version are not read.
const VERSION: u32 = 4;
const HEADER: usize = MAGIC.len() + 4 + 32;

/// Why bytes are not a compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFileError {
    /// Too short, or a file of another kind.
    NotAnImage,
    /// Another version of the format.
    OtherVersion(u32),
    /// The checksum does not match: the file is damaged.
    Damaged,
    /// The checksum matches, but the content does not decode.
    Undecodable,
    /// The file holds another kernel than its name says.
    OtherKernel,
}

impl fmt::Display for ImageFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageFileError::NotAnImage => write!(f, "not a compiled kernel"),
            ImageFileError::OtherVersion(v) => write!(f, "format version {v}, wanted {VERSION}"),
            ImageFileError::Damaged => write!(f, "the checksum does not match"),
            ImageFileError::Undecodable => write!(f, "the content does not decode"),
            ImageFileError::OtherKernel => write!(f, "it holds another kernel than its name says"),
        }
    }
}

impl std::error::Error for ImageFileError {}

/// [`KernelImage`] in plain numbers and strings.
#[derive(Serialize, Deserialize)]
struct ImageRecord {
    entry: String,
    target: String,
    ptx_version: (u32, u32),
    params: Vec<ParamRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    maps: Vec<MapRecord>,
    grid: Vec<GridRecord>,
    persistent: bool,
    splits: u32,
    partial_bytes: u64,
    threads: u32,
    shared_bytes: u32,
    ptx: String,
    /// The key, if this is an entry of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ParamRecord {
    Ptr(u32),
    Dim(u32),
    Stride(u32, u8),
    Scalar(u32),
    GridCount(u8),
    TensorMap(u8),
    Arrivals,
    Partials,
}

/// A tensor map: the parameter, axes with the extents of a box, and the span.
#[derive(Serialize, Deserialize)]
struct MapRecord {
    param: u32,
    axes: Vec<(u8, u32)>,
    span: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GridRecord {
    Points(u32),
    Tiles(u32, u32),
    UpTo(u32, u32),
}

/// The bytes of a compiled kernel.
pub fn encode(image: &KernelImage) -> Vec<u8> {
    encode_with(image, None)
}

/// The bytes of an entry of the store, which contain its key.
pub fn encode_entry(key: &KernelKey, image: &KernelImage) -> Vec<u8> {
    encode_with(image, Some(key.to_string()))
}

fn encode_with(image: &KernelImage, key: Option<String>) -> Vec<u8> {
    let record = ImageRecord {
        entry: image.entry.clone(),
        target: image.target.to_string(),
        ptx_version: image.ptx_version,
        params: image
            .params
            .iter()
            .map(|p| match *p {
                AbiParam::Ptr(p) => ParamRecord::Ptr(p.as_u32()),
                AbiParam::Dim(d) => ParamRecord::Dim(d.as_u32()),
                AbiParam::Stride(p, axis) => ParamRecord::Stride(p.as_u32(), axis),
                AbiParam::Scalar(p) => ParamRecord::Scalar(p.as_u32()),
                AbiParam::GridCount(axis) => ParamRecord::GridCount(axis),
                AbiParam::TensorMap(n) => ParamRecord::TensorMap(n),
                AbiParam::Arrivals => ParamRecord::Arrivals,
                AbiParam::Partials => ParamRecord::Partials,
            })
            .collect(),
        maps: image
            .maps
            .iter()
            .map(|map| MapRecord {
                param: map.param.as_u32(),
                axes: map.axes.iter().map(|a| (a.axis, a.size)).collect(),
                span: map.span,
            })
            .collect(),
        grid: image
            .grid
            .iter()
            .map(|g| match *g {
                GridExtent::Points(d) => GridRecord::Points(d.as_u32()),
                GridExtent::Tiles { dim, size } => GridRecord::Tiles(dim.as_u32(), size),
                GridExtent::UpTo { dim, size } => GridRecord::UpTo(dim.as_u32(), size),
            })
            .collect(),
        persistent: image.persistent,
        splits: image.splits,
        partial_bytes: image.partial_bytes,
        threads: image.threads,
        shared_bytes: image.shared_bytes,
        ptx: image.ptx.clone(),
        key,
    };
    // A record of numbers and strings always encodes. An empty payload would fail to decode and be rebuilt.
    let payload = serde_json::to_vec(&record).unwrap_or_default();
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&Sha256::digest(&payload));
    bytes.extend_from_slice(&payload);
    bytes
}

/// The inverse of [`encode`].
///
/// # Errors
/// [`ImageFileError`]: what is wrong with the bytes.
pub fn decode(bytes: &[u8]) -> Result<KernelImage, ImageFileError> {
    read(bytes)?.image().ok_or(ImageFileError::Undecodable)
}

/// The inverse of [`encode_entry`].
///
/// # Errors
/// [`ImageFileError`]: what is wrong with the bytes, or that they are not the entry for this key.
pub fn decode_entry(key: &KernelKey, bytes: &[u8]) -> Result<KernelImage, ImageFileError> {
    let record = read(bytes)?;
    if record.key.as_deref() != Some(key.to_string().as_str()) {
        return Err(ImageFileError::OtherKernel);
    }
    record.image().ok_or(ImageFileError::Undecodable)
}

fn read(bytes: &[u8]) -> Result<ImageRecord, ImageFileError> {
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
    serde_json::from_slice(payload).map_err(|_| ImageFileError::Undecodable)
}

impl ImageRecord {
    /// True if the fields about CTAs that share a program fit each other.
    fn splits_make_sense(&self) -> bool {
        let mut params = self.params.iter();
        match self.splits {
            0 => false,
            1 => self.partial_bytes == 0 && !params.any(|p| matches!(p, ParamRecord::Arrivals | ParamRecord::Partials)),
            _ => !self.persistent && self.partial_bytes.is_multiple_of(16),
        }
    }

    fn image(self) -> Option<KernelImage> {
        if !self.splits_make_sense() {
            return None;
        }
        let target = parse_target(&self.target)?;
        // The greatest `u32` stands for "no parameter" and "no dim".
        let known = |n: u32| Some(n).filter(|n| *n < u32::MAX);
        let param = |n: u32| known(n).map(Param::from_u32);
        let dim = |n: u32| known(n).map(Dim::from_u32);
        let abi = |p: ParamRecord| {
            Some(match p {
                ParamRecord::Ptr(p) => AbiParam::Ptr(param(p)?),
                ParamRecord::Dim(d) => AbiParam::Dim(dim(d)?),
                ParamRecord::Stride(p, axis) => AbiParam::Stride(param(p)?, axis),
                ParamRecord::Scalar(p) => AbiParam::Scalar(param(p)?),
                ParamRecord::GridCount(axis) => AbiParam::GridCount(axis),
                ParamRecord::TensorMap(n) => AbiParam::TensorMap(n),
                ParamRecord::Arrivals => AbiParam::Arrivals,
                ParamRecord::Partials => AbiParam::Partials,
            })
        };
        let map = |m: MapRecord| {
            let axes = m.axes.into_iter().map(|(axis, size)| MapAxis { axis, size }).collect();
            Some(TensorMapData { param: param(m.param)?, axes, span: m.span })
        };
        let extent = |g: GridRecord| {
            Some(match g {
                GridRecord::Points(d) => GridExtent::Points(dim(d)?),
                GridRecord::Tiles(d, size) => GridExtent::Tiles { dim: dim(d)?, size },
                GridRecord::UpTo(d, size) => GridExtent::UpTo { dim: dim(d)?, size },
            })
        };
        Some(KernelImage {
            entry: self.entry,
            ptx: self.ptx,
            ptx_version: self.ptx_version,
            target,
            params: self.params.into_iter().map(abi).collect::<Option<_>>()?,
            maps: self.maps.into_iter().map(map).collect::<Option<_>>()?,
            grid: self.grid.into_iter().map(extent).collect::<Option<_>>()?,
            persistent: self.persistent,
            splits: self.splits,
            partial_bytes: self.partial_bytes,
            threads: self.threads,
            shared_bytes: self.shared_bytes,
        })
    }
}

/// `sm_90` or `sm_90a`, whether or not this build lowers for it.
fn parse_target(text: &str) -> Option<Target> {
    let digits = text.strip_prefix("sm_")?;
    let (digits, specific) = digits.strip_suffix('a').map_or((digits, false), |d| (d, true));
    Some(Target { sm: digits.parse().ok()?, specific })
}
