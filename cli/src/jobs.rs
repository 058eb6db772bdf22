//! Problems to tune or to ship: kernels with an element type and sizes, from the command line, a file, or drawn at random.

use super::{input, sizes};
use anyhow::{Context, Result, bail};
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::op::{BinaryOp, Predicate};
use atlas_dsl::specialization::LARGEST_CLASS;
use atlas_dsl::{Config, DType, KernelDef, Quantity, Requirement, Specialization};
use atlas_runtime::records::{MOST_SIZES, class_text, of_launch, parse_class};
use atlas_runtime::{MAX_DIM, files};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// The size that is named in examples.
const USUAL_SIZE: u64 = 1024;
/// The largest alignment in bytes that an address is known to have.
const MOST_ALIGN: u32 = 16;

/// The problems that the user named.
#[derive(clap::Args)]
pub(super) struct Asked {
    /// Kernels. Without any, all kernels in --sizes.
    kernels: Vec<String>,
    /// Sizes of dims, such as N=2048,D=64; may be given several times. Dims not named keep the kernel's usual size.
    #[arg(long, value_name = "NAME=SIZE,..")]
    dims: Vec<String>,
    /// Element type, or one for each type parameter, such as T=bf16,U=f32. Without it, bf16 if the kernel takes it.
    #[arg(long)]
    dtype: Option<String>,
    /// Numbers passed to kernels by value, such as steps=64; others have defaults.
    #[arg(long, value_name = "NAME=VALUE,..", value_delimiter = ',')]
    set: Vec<String>,
    /// A TOML file with a table `[[launch]]` of kernel, dtype and dims for each size, as programs write it that run with
    /// ATLAS_RECORD_SIZES=FILE.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dims", "dtype"])]
    sizes: Option<PathBuf>,
}

impl Asked {
    /// The named kernels.
    pub(super) fn kernels(&self) -> &[String] {
        &self.kernels
    }

    /// Refuses to overwrite the file that lists them.
    pub(super) fn spare(&self, option: &str, out: &Path) -> Result<()> {
        self.sizes.as_deref().map_or(Ok(()), |sizes| input::spare(option, out, &[("--sizes", sizes)]))
    }

    /// All problems.
    pub(super) fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = match &self.sizes {
            Some(file) => self.of_file(file)?,
            None => Vec::new(),
        };
        for kernel in self.kernels.iter().filter(|_| self.sizes.is_none()) {
            let def = input::kernel(kernel)?;
            let types = input::types(def, self.dtype.as_deref())?;
            // With several kernels, the option applies to those that can use it.
            if self.kernels.iter().all(|k| input::kernel(k).is_ok_and(|def| def.types.is_empty())) {
                input::has_types(def, self.dtype.as_deref())?;
            }
            let asked = if self.dims.is_empty() { vec![String::new()] } else { self.dims.clone() };
            for dims in asked {
                let dims = sizes::dims(def, Some(&dims))?;
                let job = Job::of_spec(def, input::specialization_of(def, &dims, &types)?, &dims)?;
                sizes::runs(def, &dims)?;
                jobs.push(job);
            }
        }
        let mut set = BTreeSet::new();
        for text in &self.set {
            let numbers = scalars(text).context("--set")?;
            if let Some(name) = numbers.keys().find(|name| !set.insert((*name).clone())) {
                bail!("--set: `{name}` is set twice");
            }
            let mut is_known = false;
            for job in &mut jobs {
                for (name, value) in &numbers {
                    if let Some(dtype) = scalar_of(job.def, name) {
                        holds(dtype, name, *value).context("--set")?;
                        job.scalars.insert(name.clone(), *value);
                        is_known = true;
                    }
                }
            }
            if !is_known && !jobs.is_empty() {
                bail!("--set: no kernel takes `{text}` by value");
            }
        }
        if jobs.is_empty() {
            bail!("nothing to do: name kernels, or a file with --sizes");
        }
        Ok(jobs)
    }

    /// The problems in a file, restricted to the named kernels if there are any.
    fn of_file(&self, file: &Path) -> Result<Vec<Job>> {
        let mut jobs = of_file(file)?;
        // Programs record launches of empty tensors too.
        jobs.retain(|j| !j.is_empty());
        let mut listed: Vec<&str> = jobs.iter().map(|j| j.def.name).collect();
        listed.sort_unstable();
        listed.dedup();
        if listed.is_empty() {
            bail!("--sizes: {} lists no launch at which something runs", file.display());
        }
        for kernel in &self.kernels {
            if !listed.contains(&kernel.as_str()) {
                input::kernel(kernel)?;
                bail!("--sizes: {} lists no launch of `{kernel}`, only of {}", file.display(), listed.join(", "));
            }
        }
        jobs.retain(|j| self.kernels.is_empty() || self.kernels.iter().any(|k| k == j.def.name));
        Ok(jobs)
    }
}

/// One problem.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) def: &'static KernelDef,
    /// In the order of the kernel's type parameters.
    pub(super) types: Vec<DType>,
    /// In the signature's order.
    pub(super) dims: Vec<u64>,
    /// Includes the facts of unusual tensors.
    pub(super) spec: Specialization,
    /// Numbers passed by value, other than the defaults.
    pub(super) scalars: Scalars,
}

/// Numbers passed to a kernel by value, by name.
pub(super) type Scalars = BTreeMap<String, f64>;

/// Parses `steps=64 scale=0.5`, with each name once.
pub(super) fn scalars(text: &str) -> Result<Scalars> {
    let mut scalars = Scalars::new();
    for pair in text.split([',', ' ']).filter(|pair| !pair.is_empty()) {
        let number = pair.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let (name, value) = number.with_context(|| format!("`{pair}` is not NAME=VALUE"))?;
        if scalars.insert(name.to_owned(), value).is_some() {
            bail!("`{name}` is set twice in `{text}`");
        }
    }
    Ok(scalars)
}

/// The text of some numbers.
pub(super) fn scalars_text(scalars: &Scalars) -> String {
    scalars.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// The element type of a number that a kernel takes by value.
fn scalar_of(def: &KernelDef, name: &str) -> Option<DTypeRef> {
    def.params.iter().find_map(|p| match p {
        ParamDef::Scalar { name: n, dtype, .. } if *n == name => Some(*dtype),
        _ => None,
    })
}

/// Refuses a number that an element type cannot represent.
fn holds(dtype: DTypeRef, name: &str, value: f64) -> Result<()> {
    let least = match dtype {
        DTypeRef::Fixed(DType::I32) => f64::from(i32::MIN),
        DTypeRef::Fixed(DType::I64) => i64::MIN as f64,
        _ => return Ok(()),
    };
    if value.fract() != 0.0 || !(least..-least).contains(&value) {
        bail!("`{name}` is a whole number, and {value} is none that it holds");
    }
    Ok(())
}

/// A size of a dim that meets the kernel's requirements on this dim alone.
fn example(def: &KernelDef, dim: &str) -> u64 {
    let Some(at) = def.dims.iter().position(|d| d.name == dim) else { return USUAL_SIZE };
    let alone = |r: &&Requirement| r.dims() == [at];
    let meets = |size: &u64| {
        let sizes: Vec<u64> = def.dims.iter().map(|_| *size).collect();
        def.requires.iter().filter(alone).all(|r| r.holds(&sizes))
    };
    let powers = (0..31).map(|n| 1 << n);
    let mut some = std::iter::once(USUAL_SIZE).chain(1..=2 * USUAL_SIZE).chain(powers);
    some.find(meets).unwrap_or(USUAL_SIZE)
}

impl Job {
    fn of_spec(def: &'static KernelDef, spec: Specialization, dims: &BTreeMap<String, u64>) -> Result<Job> {
        let size = |d: &atlas_dsl::def::DimDef| {
            dims.get(d.name).copied().with_context(|| {
                let such_as = example(def, d.name);
                format!(
                    "`{}` has no usual size of `{}`: give it, such as --dims {}={such_as}",
                    def.name, d.name, d.name
                )
            })
        };
        let sizes = def.dims.iter().map(size).collect::<Result<Vec<u64>>>()?;
        let types = def.types.iter().map(|t| spec.types[t.name]).collect();
        let job = Job { def, types, dims: sizes, spec, scalars: Scalars::new() };
        sizes::required(def, dims)?;
        sizes::possible(def, dims)?;
        Ok(job)
    }

    /// True if nothing is written, so that no program runs.
    fn is_empty(&self) -> bool {
        let names = self.def.dims.iter().map(|d| d.name.to_owned());
        sizes::writes_nothing(self.def, &names.zip(self.dims.iter().copied()).collect())
    }

    /// A problem in the text form of records, bundles and `ATLAS_RECORD_SIZES`: `T=bf16`, `N=32768 D=8192`, `x=4:*8,1`.
    /// Types that are not named are `dtype`, or the defaults.
    pub(super) fn of_class(kernel: &str, types: &str, dims: &str, tensors: &str, dtype: Option<&str>) -> Result<Job> {
        let def = input::kernel(kernel)?;
        let class = parse_class("", "", tensors).with_context(|| {
            format!(
                "`{tensors}` of `{kernel}` is no list of tensors: such as `x=4:*8,1`, a tensor's alignment in bytes and then the stride of \
                 each axis, a number or `*` and a power of two that divides it"
            )
        })?;
        let types = input::types(def, if types.is_empty() { dtype } else { Some(types) })?;
        let dims = sizes::dims(def, Some(dims))?;
        let mut spec = input::specialization_of(def, &dims, &types)?;
        for (name, facts) in class.tensors {
            let rank = def.params.iter().find_map(|p| match p {
                ParamDef::Tensor { name: n, dims, .. } if *n == name => Some(dims.len()),
                _ => None,
            });
            match rank {
                None => {
                    let tensors =
                        def.params.iter().filter(|p| matches!(p, ParamDef::Tensor { .. })).map(ParamDef::name);
                    let tensors = tensors.collect::<Vec<_>>().join(", ");
                    bail!("`{}` has no tensor `{name}`; its tensors are {tensors}", def.name)
                }
                Some(rank) if rank != facts.strides.len() => bail!("`{name}` of `{}` has {rank} strides", def.name),
                Some(_) => spec.tensors.insert(name, facts),
            };
        }
        let sizes: Vec<u64> = def.dims.iter().map(|d| dims.get(d.name).copied().unwrap_or(u64::MAX)).collect();
        let launched = of_launch(def, &spec, &sizes);
        for (name, facts) in &spec.tensors {
            // A usual tensor may be named in the text, but is not part of the class.
            let usual = Specialization { tensors: [(name.clone(), facts.clone())].into(), ..spec.clone() };
            if launched.tensors.get(name) != Some(facts) && !class_text(def, &usual).1.is_empty() {
                let launched = class_text(def, &launched).1;
                let is_of = |text: &&str| text.split_once('=').is_some_and(|(of, _)| of == name);
                let wanted = launched
                    .split(' ')
                    .find(is_of)
                    .map_or_else(|| "a usual tensor, which is not named".to_owned(), |text| format!("`{text}`"));
                bail!(
                    "no launch of `{}` has the view of `{name}` in `{tensors}`: that of a launch is {wanted}. A stride is that of a \
                     contiguous tensor, 1, or `*` and the power of two of at most {LARGEST_CLASS} that divides it; an alignment is \
                     {MOST_ALIGN} bytes at the most",
                    def.name
                )
            }
        }
        Job::of_spec(def, Specialization { tensors: launched.tensors, ..spec }, &dims)
    }

    /// The element type if all are the same.
    pub(super) fn dtype(&self) -> Option<DType> {
        let first = self.types.first().copied().unwrap_or(DType::F32);
        self.types.iter().all(|t| *t == first).then_some(first)
    }

    /// The same problem as a request to the worker.
    pub(super) fn request(&self, verb: &str) -> Value {
        let (types, tensors) = class_text(self.def, &self.spec);
        json!({
            "verb": verb, "kernel": self.def.name, "types": types, "dims": self.dims_text(), "tensors": tensors,
            "set": scalars_text(&self.scalars),
        })
    }

    /// The problem in a request.
    pub(super) fn of_request(request: &Value) -> Result<Job> {
        let text = |key: &str| request[key].as_str().with_context(|| format!("the request has no `{key}`"));
        let job = Job::of_class(text("kernel")?, text("types")?, text("dims")?, text("tensors")?, None)?;
        Ok(Job { scalars: scalars(text("set")?).context("the request has numbers that are none")?, ..job })
    }

    /// `softmax bf16 N=32768 D=8192`.
    pub(super) fn text(&self) -> String {
        let (types, tensors) = class_text(self.def, &self.spec);
        let types = self.dtype().map_or(types, |t| t.to_string());
        let parts = [self.def.name, &types, &self.dims_text(), &tensors, &scalars_text(&self.scalars)];
        parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// `N=32768 D=8192`.
    pub(super) fn dims_text(&self) -> String {
        self.def.dims_text(&self.dims)
    }
}

/// A file of launches, as `--sizes` reads it and `ATLAS_RECORD_SIZES` writes it.
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
    /// `T=bf16`, instead of `dtype`.
    #[serde(default)]
    types: String,
    #[serde(default)]
    dims: String,
    /// Tensors that are not contiguous or not aligned: `x=4:*8,1`.
    #[serde(default)]
    tensors: String,
    /// Numbers passed by value: `steps=64`.
    #[serde(default)]
    set: String,
    /// The number of launches, for readers only.
    #[serde(default)]
    #[allow(dead_code, reason = "files of launches have it, and nothing here depends on it")]
    count: u64,
    /// Configs, if any are named.
    #[serde(default)]
    configs: Vec<String>,
}

/// The launches in a file.
fn of_file(path: &Path) -> Result<Vec<Job>> {
    let text = files::read_text(path).with_context(|| format!("--sizes: cannot read {}", path.display()))?;
    let listed = launches(&text).with_context(|| format!("--sizes: {}", path.display()))?;
    Ok(listed.into_iter().map(|(job, _)| job).collect())
}

/// The launches in a text, each with the configs that it names.
pub(super) fn launches(text: &str) -> Result<Vec<(Job, Vec<Config>)>> {
    let launches: Launches = toml::from_str(text)?;
    let one = |l: &Launched| {
        let mut job = Job::of_class(&l.kernel, &l.types, &l.dims, &l.tensors, l.dtype.as_deref())?;
        job.scalars = scalars(&l.set).context("set")?;
        if let Some(name) = job.scalars.keys().find(|name| scalar_of(job.def, name).is_none()) {
            bail!("`{}` takes no number `{name}` by value", job.def.name);
        }
        let configs = l.configs.iter().map(|c| c.parse::<Config>().map_err(anyhow::Error::msg));
        Ok((job, configs.collect::<Result<Vec<Config>>>()?))
    };
    let named = |(at, l): (usize, &Launched)| one(l).with_context(|| format!("launch {} of `{}`", at + 1, l.kernel));
    launches.launch.iter().enumerate().map(named).collect()
}

/// The text for some launches with their configs. Names and configs contain no quotation marks.
pub(super) fn launches_text<'a>(all: impl Iterator<Item = (&'a Job, &'a [Config])>) -> String {
    let mut text = String::new();
    for (job, configs) in all {
        let (types, tensors) = class_text(job.def, &job.spec);
        let configs: Vec<String> = configs.iter().map(|c| format!("\"{c}\"")).collect();
        text += &format!(
            "[[launch]]\nkernel = \"{}\"\ntypes = \"{types}\"\ndims = \"{}\"\ntensors = \"{tensors}\"\nset = \"{}\"\nconfigs = [{}]\n\n",
            job.def.name,
            job.dims_text(),
            scalars_text(&job.scalars),
            configs.join(", ")
        );
    }
    text
}

/// After this many draws in a row without a new size, the search stops.
const MOST_IN_VAIN: usize = 20_000;

/// Draws sizes at random around a kernel's usual size. Each dim is between an eighth of its usual size and all of it,
/// log-uniformly, and is rounded to a common multiple: 1, 8, 64 or 128. The kernel's requirements on its dims are met.
pub(super) fn drawn(job: &Job, count: usize, seed: u64) -> Result<Vec<Job>> {
    let name = job.def.name.bytes().fold(seed, |h, b| h.wrapping_mul(0x0100_0000_01b3) ^ u64::from(b));
    let mut rng = StdRng::seed_from_u64(name);
    let types = class_text(job.def, &job.spec).0;
    if count > MOST_SIZES {
        bail!("--draw {count}: a record has {MOST_SIZES} sizes at the most");
    }
    let (mut jobs, mut seen): (Vec<Job>, HashSet<Vec<u64>>) = Default::default();
    let mut in_vain = 0;
    while jobs.len() < count {
        if in_vain == MOST_IN_VAIN {
            let (name, around) = (job.def.name, job.dims_text());
            bail!("--draw {count}: found no more than {} sizes that `{name}` takes around {around}", jobs.len());
        }
        in_vain += 1;
        let dims = job.def.dims.iter().zip(&job.dims).map(|(d, &usual)| {
            // A dim that a kernel uses whole belongs to a model and seldom varies.
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
            if usual < 4 { usual } else { ((size / unit as f64).round() as u64).max(1) * unit }
        });
        let mut dims: Vec<u64> = dims.collect();
        settle(job.def, &mut dims);
        // A size that was drawn before is not new, whether it was accepted or not.
        if !seen.insert(dims.clone()) {
            continue;
        }
        let dims = job.def.dims.iter().zip(&dims).map(|(d, size)| format!("{}={size}", d.name));
        let drawn = Job::of_class(job.def.name, &types, &dims.collect::<Vec<_>>().join(" "), "", None);
        if let Ok(drawn) = drawn {
            in_vain = 0;
            jobs.push(Job { scalars: job.scalars.clone(), ..drawn });
        }
    }
    Ok(jobs)
}

/// Sets dims that follow from others. For `E == 1 + D + D * D` or `C * L >= N`, the first dim becomes the least size
/// that meets the condition.
fn settle(def: &KernelDef, dims: &mut [u64]) {
    let follows = |r: &&Requirement| {
        let is = (r.left, r.is);
        matches!(is, (Quantity::Dim(_), Predicate::Eq) | (Quantity::Of(BinaryOp::Mul, _), Predicate::Ge))
    };
    for r in def.requires.iter().filter(follows) {
        let Some(&d) = r.left.dims().iter().find(|d| !r.right.dims().contains(d)) else { continue };
        let reaches = |size: u64, dims: &mut [u64]| {
            dims[d] = size;
            Requirement { is: Predicate::Ge, ..*r }.holds(dims)
        };
        let before = dims[d];
        let (mut low, mut high) = (0, MAX_DIM as u64);
        if !reaches(high, dims) {
            dims[d] = before;
            continue;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if reaches(middle, dims) { high = middle } else { low = middle }
        }
        dims[d] = high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are few sizes around small ones, so a draw of more ends soon, and a draw of more than a record may hold
    /// ends at once.
    #[test]
    fn a_draw_ends_where_there_are_no_more_sizes() {
        let job = Job::of_class("softmax", "T=bf16", "N=4 D=4", "", None).expect("a job");
        let begun = std::time::Instant::now();
        let said = drawn(&job, 1000, 1).err().expect("there are no 1000").to_string();
        assert!(said.starts_with("--draw 1000: found no more than ") && said.contains("around N=4 D=4"), "{said}");
        for count in [MOST_SIZES + 1, usize::MAX] {
            let said = drawn(&job, count, 1).err().expect("too many").to_string();
            assert_eq!(said, format!("--draw {count}: a record has 4096 sizes at the most"));
        }
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        let job = Job::of_class("softmax", "T=bf16", "N=4096 D=4096", "", None).expect("a job");
        let all = drawn(&job, 50, 1).expect("sizes");
        assert_eq!(all.iter().map(|j| &j.dims).collect::<HashSet<_>>().len(), 50);
    }

    /// Drawn problems are such as the kernel's op makes: no superfluous chunks, and all monomials and no more.
    #[test]
    fn dims_that_follow_from_others_do() {
        let settled = |kernel: &str, sizes: &[(&str, u64)]| -> Vec<u64> {
            let def = input::kernel(kernel).expect("a kernel");
            let of = |name: &str| sizes.iter().find(|s| s.0 == name).map_or(64, |s| s.1);
            let mut dims: Vec<u64> = def.dims.iter().map(|d| of(d.name)).collect();
            settle(def, &mut dims);
            let at = |name: &str| def.dims.iter().position(|d| d.name == name).map_or(0, |d| dims[d]);
            ["C", "E", "D"].map(at).to_vec()
        };
        assert_eq!(settled("omega_mix", &[("N", 500), ("L", 48), ("C", 31)])[0], 11);
        assert_eq!(settled("taylor2_features", &[("D", 20), ("E", 3)])[1..], [421, 20]);
        assert_eq!(settled("monomials2", &[("D", 20), ("E", 9999)])[1..], [231, 20]);
    }
}
