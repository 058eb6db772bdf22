//! Bundles: a file with compiled kernels and tables that say which kernel runs which problem. A program with a bundle
//! needs only NVIDIA's driver.
//!
//! The room may depend on `compile` for kernels as bytes and their keys, and, to make a table of choices, on `select`,
//! `records` and `cost`. It does not know devices: a query to a bundle names the machine.
//!
//! | file | holds |
//! |---|---|
//! | `file` | the bytes: header, table of contents, sections, hashes |
//! | `entry` | the entry of one kernel |
//! | `known` | the same entry, parsed for a kernel of the program |
//! | `table` | which variant runs which sizes |
//! | `regions` | how a table is made |
//! | `offer` | the variants that serve a problem, best first |
//! | `write` | writes a bundle |

mod entry;
mod file;
mod known;
mod offer;
mod regions;
mod table;
mod write;

pub use crate::error::{BundleError, shown};
pub use entry::{ClassEntry, Cubin, Evidence, KernelEntry, MachineTable, Resources, Variant, VariantCode};
pub use file::is_whole;
pub(crate) use offer::{Asked, Lack, Offer};
pub use regions::{Choices, regions};
pub use table::{MOST_CELLS, Table};
pub use write::BundleWriter;

use self::file::{BundleFile, MOST_TEXT};
use crate::compile::image_file;
use atlas_codegen::KernelImage;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The environment variable that lists bundle files, separated as folders are in `PATH`.
pub const BUNDLES_VARIABLE: &str = "ATLAS_BUNDLES";

/// A bundle that is part of a program. `atlas::bundle!` makes it.
#[derive(Clone, Copy, Debug)]
pub struct ShippedBundle {
    /// Where it came from, for messages.
    pub origin: &'static str,
    /// The file.
    pub bytes: &'static [u8],
}

inventory::collect!(ShippedBundle);

/// Compiled kernels in a file.
pub struct Bundle {
    file: BundleFile,
    /// Unique in this process: a damaged file says nothing about an intact copy.
    id: u64,
    /// The entries that were asked for, or the error in them.
    entries: Mutex<HashMap<String, Result<Arc<KernelEntry>, BundleError>>>,
    /// The same for kernels of the program, by the address of their declaration.
    known: Mutex<HashMap<usize, Result<Arc<known::Known>, BundleError>>>,
}

impl Bundle {
    /// Opens a file.
    ///
    /// # Errors
    /// [`BundleError`] if the file cannot be read, is not a bundle, or has another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        let wrong = |message: String| BundleError { origin: origin.clone(), message };
        // Opening a pipe may wait for a writer, and a device may have no end.
        let found = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?;
        if !found.is_file() {
            return Err(wrong("it is no file".to_owned()));
        }
        let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        Bundle::read(&origin, bytes)
    }

    /// Reads a bundle from bytes. `origin` names them in messages. Kernels are read on demand.
    ///
    /// # Errors
    /// [`BundleError`] if they are not a bundle, or one of another version.
    pub fn read(origin: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Bundle, BundleError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let file = BundleFile::read(origin, bytes.into())?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Bundle { file, id, entries: Mutex::default(), known: Mutex::default() })
    }

    /// The path of the file, or the origin that was given for the bytes.
    pub fn origin(&self) -> &str {
        &self.file.origin
    }

    /// The versions that made it: Atlas, its code generator and LLVM.
    pub fn made_by(&self) -> &str {
        &self.file.contents.made_by
    }

    /// The names of its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.file.contents.kernels.keys().map(String::as_str)
    }

    /// The entry of a kernel. `None` if the bundle does not have the kernel.
    ///
    /// # Errors
    /// [`BundleError`] if that part of the file is damaged.
    pub fn entry(&self, kernel: &str) -> Option<Result<Arc<KernelEntry>, BundleError>> {
        let section = self.file.contents.kernels.get(kernel)?;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let what = format!("the part of `{kernel}`");
            let bytes = self.file.section_within(section, &what, MOST_TEXT)?;
            let wrong = |message: String| self.file.wrong(format!("{what}: {message}"));
            KernelEntry::parse(&bytes, self.file.contents.images.len(), wrong).map(Arc::new)
        };
        Some(entries.entry(kernel.to_owned()).or_insert_with(read).clone())
    }

    /// The compiled kernel of a variant. With packed operands, that which reads them.
    ///
    /// # Errors
    /// [`BundleError`] if that part of the file is damaged, or holds another kernel than the entry says.
    pub fn image(&self, variant: &Variant) -> Result<KernelImage, BundleError> {
        self.image_of(variant, variant.code())
    }

    /// One of the compiled kernels of a variant.
    ///
    /// # Errors
    /// As [`image`](Bundle::image).
    pub fn image_of(&self, variant: &Variant, code: VariantCode) -> Result<KernelImage, BundleError> {
        let what = format!("the kernel compiled with `{}`", variant.config);
        let image = image_file::decode(&self.bytes_of(code.image, &what)?);
        let image = image.map_err(|e| self.file.wrong(format!("{what}: {e}")))?;
        match image.target.to_string() == variant.target {
            true => Ok(image),
            false => Err(self.file.wrong(format!("{what} is for {}, not {}", image.target, variant.target))),
        }
    }

    /// The SHA-256 of an image.
    pub(crate) fn image_hash(&self, code: VariantCode) -> &str {
        self.file.contents.images.get(code.image).map_or("", |s| s.hash())
    }

    /// The bytes of a variant's machine code.
    pub(crate) fn cubin(&self, cubin: Cubin) -> Result<Vec<u8>, BundleError> {
        self.bytes_of(cubin.image, "machine code")
    }

    fn bytes_of(&self, image: usize, what: &str) -> Result<Vec<u8>, BundleError> {
        let section = self.file.contents.images.get(image);
        self.file.section(section.ok_or_else(|| self.file.wrong(format!("{what} is missing")))?, what)
    }

    /// The texts of the tuning records that it was made with.
    ///
    /// # Errors
    /// [`BundleError`] if that part of the file is damaged.
    pub fn records(&self) -> Result<Vec<String>, BundleError> {
        self.file.contents.records.iter().map(|s| self.text(s, "a tuning record")).collect()
    }

    /// The problems that its kernels are candidates for, as text, if `atlas tune --pack` made the bundle.
    ///
    /// # Errors
    /// [`BundleError`] if that part of the file is damaged.
    pub fn problems(&self) -> Result<Option<String>, BundleError> {
        self.file.contents.problems.as_ref().map(|s| self.text(s, "the list of problems")).transpose()
    }

    fn text(&self, section: &file::Section, what: &str) -> Result<String, BundleError> {
        let bytes = self.file.section_within(section, what, MOST_TEXT)?;
        String::from_utf8(bytes).map_err(|_| self.file.wrong(format!("{what} is no text")))
    }

    /// Reads every part of the file, to find damage anywhere.
    ///
    /// # Errors
    /// [`BundleError`] for the first damaged part.
    pub fn check(&self) -> Result<(), BundleError> {
        let (mut seen, mut cubins) = (HashSet::new(), HashSet::new());
        for kernel in self.kernels() {
            let Some(entry) = self.entry(kernel) else { continue };
            for variant in entry?.classes.iter().flat_map(|c| &c.variants) {
                // A file may name one image many times.
                for code in variant.codes() {
                    if seen.insert((code.image, variant.target.clone())) {
                        self.image_of(variant, code)?;
                    }
                    if let Some(cubin) = code.cubin.filter(|cubin| cubins.insert(cubin.image)) {
                        self.cubin(cubin)?;
                    }
                }
            }
        }
        self.problems()?;
        // One at a time, because a file may name one section many times.
        self.file.contents.records.iter().try_for_each(|s| self.text(s, "a tuning record").map(drop))
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle({}, {} kernels)", self.origin(), self.file.contents.kernels.len())
    }
}

/// The bundles of a device, in the order in which they are searched.
#[derive(Clone, Debug, Default)]
pub struct Bundles {
    all: Vec<Arc<Bundle>>,
    /// Those that are searched after all others, whenever these are added.
    last: Vec<Arc<Bundle>>,
    problems: Vec<BundleError>,
}

/// A file that was named for all GPUs, and its bundle once one was opened.
struct NamedFile {
    path: PathBuf,
    read: Option<Result<Arc<Bundle>, BundleError>>,
}

/// The files of [`Bundles::name_for_gpus`].
static NAMED: Mutex<Vec<NamedFile>> = Mutex::new(Vec::new());

impl Bundles {
    /// The files that `ATLAS_BUNDLES` names, followed by the bundles that are part of the program and those of
    /// [`Bundles::name_for_gpus`]. They are read once per process. Bundles that cannot be read are left out and listed in
    /// [`Bundles::problems`].
    pub fn of_program() -> Bundles {
        static BUNDLES: LazyLock<Bundles> = LazyLock::new(|| {
            let files = std::env::var_os(BUNDLES_VARIABLE);
            let files: Vec<_> =
                files.iter().flat_map(std::env::split_paths).filter(|p| !p.as_os_str().is_empty()).collect();
            let shipped = inventory::iter::<ShippedBundle>.into_iter().map(|s| Bundle::read(s.origin, s.bytes));
            let mut bundles = Bundles::default();
            for bundle in files.iter().map(Bundle::open).chain(shipped) {
                match bundle {
                    Ok(bundle) => bundles.add(bundle),
                    Err(e) => bundles.problems.push(e),
                }
            }
            bundles
        });
        let mut bundles = BUNDLES.clone();
        for file in NAMED.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            match file.read.get_or_insert_with(|| Bundle::open(&file.path).map(Arc::new)) {
                Ok(bundle) => bundles.last.push(bundle.clone()),
                Err(e) => bundles.problems.push(e.clone()),
            }
        }
        bundles
    }

    /// Names a file for the GPUs that are opened from now on. They search its bundle after all others, those too that are added
    /// later. The file is read when the first of them is opened, and not before: a program that stays on the CPU does not read
    /// it, and a forked one reads it itself.
    pub fn name_for_gpus(path: impl Into<PathBuf>) {
        let path = path.into();
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        if named.iter().all(|file| file.path != path) {
            named.push(NamedFile { path, read: None });
        }
    }

    /// Adds a bundle, to be searched after the others except those of [`Bundles::name_for_gpus`].
    pub fn add(&mut self, bundle: Bundle) {
        self.all.push(Arc::new(bundle));
    }

    /// All of them, in the order in which they are searched.
    pub fn iter(&self) -> impl Iterator<Item = &Bundle> {
        self.shared().map(|b| &**b)
    }

    fn shared(&self) -> impl Iterator<Item = &Arc<Bundle>> {
        self.all.iter().chain(&self.last)
    }

    /// The errors of the bundles that could not be read.
    pub fn problems(&self) -> &[BundleError] {
        &self.problems
    }

    /// True if there are no bundles, and none that could not be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared().next().is_none() && self.problems.is_empty()
    }
}
