//! Problems to tune or to ship: kernels with an element type and sizes, from the command line, a file, or drawn at random.

use super::input;
use anyhow::{Context, Result, bail};
use atlas_dsl::{DType, KernelDef, Specialization};
use atlas_runtime::records::parse_class;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The problems that the user named.
#[derive(clap::Args)]
pub(super) struct Asked {
    /// Kernels; all of --sizes unless given.
    kernels: Vec<String>,
    /// Sizes of dims, such as N=2048,D=64; may be given several times. Dims not named keep the kernel's usual size.
    #[arg(long, value_name = "NAME=SIZE,..")]
    dims: Vec<String>,
    /// Element type; bf16 unless given.
    #[arg(long)]
    dtype: Option<String>,
    /// A TOML file with a table `[[launch]]` of kernel, dtype and dims for each size, as programs write it that run with
    /// ATLAS_RECORD_SIZES=FILE.
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
}

impl Asked {
    /// All of them.
    pub(super) fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = self.sizes.as_deref().map_or_else(|| Ok(Vec::new()), of_file)?;
        if !self.kernels.is_empty() {
            jobs.retain(|j| self.kernels.iter().any(|k| k == j.def.name));
        }
        let asked = input::ProblemArgs { dtype: self.dtype.clone(), ..input::ProblemArgs::default() };
        let dtype = input::dtype_or(&asked, DType::Bf16)?;
        for kernel in self.kernels.iter().filter(|_| self.sizes.is_none()) {
            let def = input::kernel(kernel)?;
            let sizes = if self.dims.is_empty() { vec![String::new()] } else { self.dims.clone() };
            for dims in sizes {
                jobs.push(Job::new(def, dtype, &input::dims(def, Some(&dims))?)?);
            }
        }
        if jobs.is_empty() {
            bail!("nothing to do: name kernels, or a file with --sizes");
        }
        Ok(jobs)
    }
}

/// One problem.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) def: &'static KernelDef,
    pub(super) dtype: DType,
    /// In the signature's order.
    pub(super) dims: Vec<u64>,
    pub(super) spec: Specialization,
}

impl Job {
    pub(super) fn new(def: &'static KernelDef, dtype: DType, dims: &BTreeMap<String, u64>) -> Result<Job> {
        let spec = input::specialization(def, dims, dtype)?;
        let size = |d: &atlas_dsl::def::DimDef| {
            dims.get(d.name).copied().with_context(|| {
                format!("`{}` has no usual size of `{}`: give it, such as --dims {}=1024", def.name, d.name, d.name)
            })
        };
        let sizes = def.dims.iter().map(size).collect::<Result<Vec<u64>>>()?;
        let job = Job { def, dtype, dims: sizes, spec };
        if !def.requires.iter().all(|r| r.holds(&job.dims)) {
            bail!("`{}` has a `require` that does not hold for {}", def.name, job.dims_text());
        }
        Ok(job)
    }

    /// What was launched in some program: `types`, `dims` and `tensors` as `ATLAS_RECORD_SIZES` has them.
    fn launched(l: &Launched) -> Result<Job> {
        let def = input::kernel(&l.kernel)?;
        let class = parse_class(&l.types, "", &l.tensors);
        let class = class.with_context(|| format!("`{} {}` are no element types and tensors", l.types, l.tensors))?;
        let first = class.types.values().next().map(|d| d.name().to_owned());
        let asked = input::ProblemArgs { dtype: l.dtype.clone().or(first), ..input::ProblemArgs::default() };
        let mut job = Job::new(def, input::dtype_or(&asked, DType::Bf16)?, &input::dims(def, Some(&l.dims))?)?;
        for (name, dtype) in class.types {
            let Some(t) = def.types.iter().find(|t| t.name == name) else {
                bail!("`{}` has no element type `{name}`", def.name)
            };
            if !t.allowed.contains(&dtype) {
                bail!("`{name}` of `{}` cannot be {dtype}", def.name);
            }
            job.spec.types.insert(name, dtype);
        }
        job.spec.tensors = class.tensors;
        Ok(job)
    }

    /// The same problem as text for the worker.
    pub(super) fn request(&self, verb: &str) -> Value {
        json!({ "verb": verb, "kernel": self.def.name, "dtype": self.dtype.name(), "dims": self.dims_text() })
    }

    /// The problem of a request.
    pub(super) fn of_request(request: &Value) -> Result<Job> {
        let text = |key: &str| request[key].as_str().with_context(|| format!("the request has no `{key}`"));
        let def = input::kernel(text("kernel")?)?;
        let asked = input::ProblemArgs { dtype: Some(text("dtype")?.to_owned()), ..input::ProblemArgs::default() };
        Job::new(def, input::dtype_or(&asked, DType::Bf16)?, &input::dims(def, Some(text("dims")?))?)
    }

    /// `softmax bf16 N=32768 D=8192`.
    pub(super) fn text(&self) -> String {
        format!("{} {} {}", self.def.name, self.dtype, self.dims_text())
    }

    /// `N=32768 D=8192`.
    pub(super) fn dims_text(&self) -> String {
        let pairs = self.def.dims.iter().zip(&self.dims).map(|(d, n)| format!("{}={n}", d.name));
        pairs.collect::<Vec<_>>().join(" ")
    }
}

/// A file of launches, as `--sizes` reads it and `ATLAS_RECORD_SIZES` has it written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launches {
    #[serde(default)]
    launch: Vec<Launched>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launched {
    kernel: String,
    #[serde(default)]
    dtype: Option<String>,
    /// `T=bf16`, in place of `dtype`.
    #[serde(default)]
    types: String,
    #[serde(default)]
    dims: String,
    /// Tensors that are not contiguous or not aligned: `x=4:*8,1`.
    #[serde(default)]
    tensors: String,
    /// How often it was launched; for people.
    #[serde(default)]
    #[allow(dead_code, reason = "files of launches have it, and nothing here depends on it")]
    count: u64,
}

/// The launches that a file lists.
fn of_file(path: &Path) -> Result<Vec<Job>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--sizes: cannot read {}", path.display()))?;
    let launches: Launches = toml::from_str(&text).with_context(|| format!("--sizes: {}", path.display()))?;
    launches.launch.iter().map(Job::launched).collect()
}

/// Sizes drawn at random around a kernel's own: each dim from an eighth of its size to all of it, evenly in its logarithm, and
/// rounded to what such a dim usually is, a multiple of 1, 8, 64 or 128. What a kernel demands of its dims is met.
pub(super) fn drawn(job: &Job, count: usize, seed: u64) -> Result<Vec<Job>> {
    let name = job.def.name.bytes().fold(seed, |h, b| h.wrapping_mul(0x0100_0000_01b3) ^ u64::from(b));
    let mut rng = StdRng::seed_from_u64(name);
    let mut jobs: Vec<Job> = Vec::new();
    for _ in 0..1000 * count {
        if jobs.len() == count {
            return Ok(jobs);
        }
        let dims = job.def.dims.iter().zip(&job.dims).map(|(d, &usual)| {
            // What a kernel uses whole is part of a model, and seldom another.
            let spread = if d.whole { -1.0..=1.0 } else { -3.0..=0.0 };
            let size = usual as f64 * f64::exp2(rng.random_range(spread));
            let unit = match (d.whole, rng.random_range(0..10)) {
                (true, _) => 16,
                (false, 0..=1) => 1,
                (false, 2..=3) => 8,
                (false, 4..=5) => 64,
                (false, _) => 128,
            };
            let unit = if usual < 4 * unit { 1 } else { unit };
            let size = if usual < 4 { usual } else { ((size / unit as f64).round() as u64).max(1) * unit };
            (d.name.to_owned(), size)
        });
        if let Ok(drawn) = Job::new(job.def, job.dtype, &dims.collect())
            && jobs.iter().all(|j| j.dims != drawn.dims)
        {
            jobs.push(drawn);
        }
    }
    bail!("found no {count} sizes that `{}` takes", job.def.name)
}
