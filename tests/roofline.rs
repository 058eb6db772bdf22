//! The lower bound on the time of a launch: each element counts once, and no measured time is below the bound.

use atlas::prelude::*;
use atlas_codegen::Card;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, KernelDef, Specialization};
use atlas_ops::cases::{self, problem};
use atlas_runtime::records::{Record, parse_class};
use atlas_runtime::{Machine, Roofline, Unit, roofline};
use rayon::prelude::*;
use std::path::Path;

atlas_kernel! {
    /// Reads each row twice.
    kernel read_twice(x: &Tensor<f32, [N, M]>, y: &mut Tensor<f32, [N, M]>) tune { BN: [4], BM: [64], warps: [4] } {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for m in tiles(M, BM) {
                total += sum(load(x[n, m]), axis = 1);
            }
            for m in tiles(M, BM) {
                store(y[n, m], load(x[n, m]) * total);
            }
        }
    }

    /// All programs read only the first row of a table.
    kernel first_row(x: &Tensor<f32, [N, D]>, w: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4], warps: [4] } {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) * load(w[0, ..]));
        }
    }

    /// Two planes of three.
    kernel two_planes(x: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [N]>) tune { BN: [128], warps: [4] } {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[0, n]) + load(x[2, n]));
        }
    }

    /// In place.
    kernel doubled(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [128], warps: [4] } {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(y[n]) * 2.0 + load(x[n]));
        }
    }

    /// Rows selected by data.
    kernel gathered(x: &Tensor<f32, [K, D]>, rows: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { warps: [4] } {
        for n in grid(N) {
            store(y[n, ..], load(x[load(rows[n]), ..]));
        }
    }

    /// A number of columns that depends on data.
    kernel counted(x: &Tensor<f32, [N, M]>, tiles_of: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BM: [64], warps: [4] } {
        for n in grid(N) {
            let mut total = 0.0;
            for m in 0..min(load(tiles_of[n]), size(M) / BM) {
                total += sum(load(x[n, span(m * BM, BM)]));
            }
            store(y[n], total);
        }
    }

    /// A number of steps given by the caller.
    kernel stepped(x: &Tensor<f32, [N, M]>, steps: i32, y: &mut Tensor<f32, [N, M]>) tune { BN: [4], BM: [64], warps: [4] } {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            let mut t = load(x[n, m]);
            for _i in 0..steps {
                t = t * 0.5 + load(x[n, m]);
            }
            store(y[n, m], t);
        }
    }

    /// A product whose ring is deeper than its loop is long.
    kernel multiplied<T: Float>(x: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [64], BK: [32], stages: [4, 2], warps: [4] } {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[k, n]));
            }
            store(y[m, n], acc);
        }
    }
}

atlas_kernel! {
    /// Whole rows and wide tiles, which the copy engine of `sm_90a` brings panel by panel.
    kernel by_panels<T: Float>(x: &Tensor<T, [M, D]>, w: &Tensor<T, [H, D]>, v: &Tensor<T, [H, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { stages: [2], warps: [8] } {
        for (m, n) in grid(tiles(M, 128), tiles(N, 128)) {
            let xs = load(x[m, ..]);
            let mut acc = zeros::<f32>([128, 128]);
            for h in pipeline(tiles(H, 64)) {
                let z = dot(xs, load(w[h, ..]).t());
                acc += dot(z.cast::<T>(), load(v[h, n]));
            }
            store(y[m, n], acc);
        }
    }
}

// Rows and windows at a quotient or remainder of a coordinate.
atlas_kernel! {
    kernel quotient(x: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N, D]>) tune { warps: [4] } {
        for n in grid(N) { store(y[n, ..], load(x[n / 64, ..])); }
    }
    kernel remainder(x: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N, D]>) tune { warps: [4] } {
        for n in grid(N) { store(y[n, ..], load(x[n % 4, ..])); }
    }
    kernel lesser(x: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N, D]>) tune { warps: [4] } {
        for n in grid(N) { store(y[n, ..], load(x[min(n, 3), ..])); }
    }
    kernel itself(x: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N, D]>) tune { warps: [4] } {
        for n in grid(N) { store(y[n, ..], load(x[n * 2 - n - n + 5, ..])); }
    }
    kernel halves(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { warps: [4] } {
        for n in grid(tiles(N, 64)) { store(y[n], load(x[span((n / 2) * 64, 64)]).or(0.0)); }
    }
    kernel none_of_it(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { warps: [4] } {
        for n in grid(tiles(N, 64)) {
            let mut total = zeros::<f32>([64]);
            for k in 0..size(N) / 64 {
                total += load(x[span(k * 0, 64)]).or(0.0);
            }
            store(y[n], total);
        }
    }
    kernel rounded_down(x: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [N, D]>) tune { warps: [4] } {
        for n in grid(N) { store(y[n, ..], load(x[n - n % 1024, ..])); }
    }
    kernel shifted(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>) tune { warps: [4] } {
        for n in grid(N) { store(y[n, ..], load(x[size(N) - 1 - n, ..])); }
    }
}

fn h200() -> (Machine, &'static Card) {
    let card = Card::named("NVIDIA H200").unwrap();
    (card.machine().unwrap(), card)
}

/// The specialization for these types and sizes, with all tensors contiguous and aligned except those of the class.
fn specialization(def: &KernelDef, class: Specialization, dims: &[u64]) -> Specialization {
    def.dims.iter().zip(dims).fold(class, |spec, (d, &n)| spec.with_dim(d.name, DimFact::of(d.whole, n)))
}

fn of_type(def: &KernelDef, dtype: DType) -> Specialization {
    def.types.iter().fold(Specialization::default(), |spec, t| spec.with_type(t.name, dtype))
}

#[track_caller]
fn least(def: &'static KernelDef, dtype: DType, dims: &[u64]) -> Roofline {
    let (machine, card) = h200();
    let spec = specialization(def, of_type(def, dtype), dims);
    roofline(def, &spec, dims, &def.default_config(), machine, card).unwrap()
}

/// The bytes divided by the DRAM rate of the card, without cycles of the model.
#[test]
fn rows_are_bound_by_dram() {
    let softmax = problem("softmax", DType::Bf16, &[65536, 1024]).unwrap().kernel;
    let bound = least(softmax, DType::Bf16, &[65536, 1024]);
    assert_eq!((bound.unit, bound.bytes, bound.fits_l2, bound.is_open), (Unit::Dram, 268_435_456.0, false, false));
    assert!((bound.us - 268.435_456 / 4.8).abs() < 1e-6, "{bound:?}");
    assert!(least(softmax, DType::Bf16, &[4096, 1024]).fits_l2);
}

#[test]
fn each_element_counts_once() {
    let bytes = |def: &'static KernelDef, dims: &[u64]| {
        let bound = least(def, DType::F32, dims);
        assert!(!bound.is_open, "{}", def.name);
        bound.bytes / 4.0
    };
    assert_eq!(bytes(&read_twice, &[4096, 1024]), 2.0 * 4096.0 * 1024.0);
    assert_eq!(bytes(&read_twice, &[4095, 1001]).round(), 2.0 * 4095.0 * 1001.0);
    assert_eq!(bytes(&first_row, &[4096, 512, 1000]), (2.0 * 4096.0 + 1.0) * 512.0);
    assert_eq!(bytes(&two_planes, &[3, 1 << 20]), 3.0 * f64::from(1 << 20));
    assert_eq!(bytes(&doubled, &[1 << 20]), 3.0 * f64::from(1 << 20));
}

/// Operands that many programs read, through rings that are filled before and inside their loops.
#[test]
fn a_product_counts_its_operands_once_and_its_operations_all() {
    for k in [32_u64, 64, 96, 160, 4096] {
        let bound = least(&multiplied, DType::Bf16, &[4096, k, 4096]);
        let (m, n, k) = (4096.0, 4096.0, k as f64);
        assert_eq!((bound.bytes, bound.flops), (2.0 * (m * k + k * n) + 4.0 * m * n, 2.0 * m * n * k), "K = {k}");
        assert_eq!(bound.unit, if k > 2000.0 { Unit::TensorCores } else { Unit::Dram });
    }
    let bound = least(&multiplied, DType::Bf16, &[4096, 4096, 4096]);
    assert!((bound.us - 2.0 * 4096.0_f64.powi(3) / 989.4e6).abs() < 1e-3, "{bound:?}");
    // Products of f32 do not use tensor cores.
    let exact = least(&multiplied, DType::F32, &[4096, 4096, 4096]);
    assert_eq!((exact.unit, exact.flops), (Unit::MultiplyAdds, bound.flops));
    assert!((exact.us - exact.flops / 66.9e6).abs() < 1e-3, "{exact:?}");
}

/// Each panel of a tile counts for its own elements.
#[test]
fn panels_of_a_tile_count_once_each() {
    let (_, card) = h200();
    let machine: Machine = "sm_90a".parse().unwrap();
    let (m, d, h, n) = (1024, 192, 512, 2048);
    let spec = specialization(&by_panels, of_type(&by_panels, DType::Bf16), &[m, d, h, n]);
    for copies in ["engine", "threads"] {
        let config: Config = format!("stages=2 warps=8 copies={copies}").parse().unwrap();
        let bound = roofline(&by_panels, &spec, &[m, d, h, n], &config, machine, card).unwrap();
        let elements = m * d + d * h + h * n;
        assert_eq!(bound.bytes, (2 * elements + 4 * m * n) as f64, "{copies}: {bound:?}");
    }
}

/// An index counts for the positions that it takes, and no others.
#[test]
fn parts_of_coordinates_come_to_parts_of_a_dim() {
    let bound = |def: &'static KernelDef, dims: &[u64]| least(def, DType::F32, dims);
    let elements = |def: &'static KernelDef, dims: &[u64]| {
        let bound = bound(def, dims);
        assert!(!bound.is_open, "{}", def.name);
        bound.bytes / 4.0
    };
    // The order is K, D, N.
    let (rows, dims) = (4096.0 * 64.0, [4096, 64, 4096]);
    assert_eq!(elements(&quotient, &dims), rows + 64.0 * 64.0);
    assert_eq!(elements(&quotient, &[4096, 64, 4097]), rows + 64.0 + 65.0 * 64.0);
    assert_eq!(elements(&remainder, &dims), rows + 4.0 * 64.0);
    assert_eq!(elements(&lesser, &dims), rows + 4.0 * 64.0);
    assert_eq!(elements(&itself, &dims), rows + 64.0);
    assert_eq!(elements(&shifted, &[4096, 64]), 2.0 * rows);
    assert_eq!(elements(&halves, &[4096]), 4096.0 + 2048.0);
    assert_eq!(elements(&none_of_it, &[4096]), 4096.0 + 64.0);
    // Two parts of one coordinate are not understood, and count for one position.
    let open = bound(&rounded_down, &dims);
    assert!(open.is_open && open.bytes / 4.0 == rows + 64.0, "{open:?}");
}

/// Amounts that depend on data are not in the bound, and the result says so.
#[test]
fn what_data_decide_is_open() {
    let open = |def: &'static KernelDef, dims: &[u64]| {
        let bound = least(def, DType::F32, dims);
        assert!(bound.is_open, "{}", def.name);
        bound.bytes / 4.0
    };
    // All rows may be the same one, and all may have no columns.
    assert_eq!(open(&gathered, &[1000, 256, 4096]), 256.0 + 4096.0 + 4096.0 * 256.0);
    assert_eq!(open(&counted, &[4096, 1024]), 2.0 * 4096.0);
    assert_eq!(open(&stepped, &[4096, 1024]), 2.0 * 4096.0 * 1024.0);
}

/// The time of a config at one size.
struct Measured {
    what: String,
    us: f64,
    /// The cycles of the cost model, if a record has them.
    cycles: Option<f64>,
    def: &'static KernelDef,
    bound: Roofline,
}

/// The fastest configs in the records of a folder, and how many of them are refused today: a kernel can have changed
/// since it was measured.
fn recorded(folder: &str) -> (Vec<Measured>, usize) {
    let (machine, card) = h200();
    let root = Path::new(crate::ROOT).join(folder);
    let files: Vec<_> = std::fs::read_dir(root).unwrap().flatten().map(|f| f.path()).collect();
    let of_file = |file: &std::path::PathBuf| -> Vec<Option<Measured>> {
        let text = std::fs::read_to_string(file).unwrap();
        let record = Record::parse(&file.display().to_string(), &text).unwrap();
        assert_eq!(record.gpu, "NVIDIA H200");
        let def = atlas_dsl::registry().into_iter().find(|d| d.name == record.kernel).unwrap();
        let one = |size: &atlas_runtime::records::TunedSize| {
            let dims: Vec<u64> =
                size.dims.split_whitespace().map(|d| d.split_once('=').unwrap().1.parse().unwrap()).collect();
            let class = parse_class(&size.types, "", &size.tensors).unwrap();
            let fastest = size.configs.iter().min_by(|a, b| a.us.total_cmp(&b.us)).unwrap();
            let config: Config = fastest.config.parse().unwrap();
            let machine = atlas_runtime::records::machine_of(size, machine);
            let bound = match roofline(def, &specialization(def, class, &dims), &dims, &config, machine, card) {
                Err(e) if e.code() == atlas_dsl::diag::Code(641) => return None,
                bound => bound.unwrap(),
            };
            let what = format!("{} {} {} `{config}`", record.kernel, size.types, size.dims);
            Some(Measured { what, us: fastest.us, cycles: Some(fastest.cycles), def, bound })
        };
        record.sizes.iter().map(one).collect()
    };
    let all: Vec<Option<Measured>> = files.par_iter().flat_map_iter(of_file).collect();
    let refused = all.iter().filter(|m| m.is_none()).count();
    (all.into_iter().flatten().collect(), refused)
}

/// The results of `atlas bench`, without plans, which have several launches.
fn benched() -> Vec<Measured> {
    let (machine, card) = h200();
    let text = std::fs::read_to_string(Path::new(crate::ROOT).join("benches/results/h200-bench.json"));
    let json: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
    let benches = cases::benches();
    let one = |row: &serde_json::Value| -> Option<Measured> {
        let name = row["name"].as_str()?;
        let def = benches.iter().find(|b| b.name == name)?.problem.kernel;
        let size = |d: &str| d.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        let dims: Vec<u64> = row["shape"].as_str()?.split(' ').map(size).collect::<Option<_>>()?;
        let class = of_type(def, DType::from_name(row["dtype"].as_str()?)?);
        let config: Config = row["config"].as_str()?.parse().ok()?;
        let bound = roofline(def, &specialization(def, class, &dims), &dims, &config, machine, card).unwrap();
        Some(Measured { what: format!("{name} {dims:?}"), us: row["min_ms"].as_f64()? * 1e3, cycles: None, def, bound })
    };
    json["results"].as_array().unwrap().iter().filter_map(one).collect()
}

/// The quantile of `of` at `share`.
fn quantile(of: &mut [f64], share: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of[((of.len() - 1) as f64 * share) as usize]
}

/// No measured time is below the bound. Also tests how far the predictions of records and of the model are from times
/// measured at other sizes.
#[test]
fn no_measured_time_is_below_the_bound() {
    let ((shipped, refused), benched) = (recorded("ops/records/nvidia-h200"), benched());
    assert_eq!(refused, 0, "records that ship have configs that their kernels refuse");
    let (drawn, refused) = recorded("benches/results/h200-tune");
    println!("{refused} sizes of {} were measured with configs that are refused today", drawn.len() + refused);
    assert!(refused < drawn.len() / 20, "{refused}");
    assert!(shipped.len() > 100 && drawn.len() > 1400 && benched.len() > 10, "{} {}", shipped.len(), benched.len());
    let faster: Vec<String> = (shipped.iter().chain(&drawn).chain(&benched))
        .filter(|m| m.us < m.bound.us)
        .map(|m| format!("{}: {:.2} us, bound {:.2} us by {}", m.what, m.us, m.bound.us, m.bound.unit))
        .collect();
    assert!(faster.is_empty(), "{} faster than the bound:\n{}", faster.len(), faster.join("\n"));
    // Launches that take much longer than they take to start.
    let long = |m: &&Measured| m.us > 50.0 && !m.bound.is_open;
    let mut of_bound: Vec<f64> = drawn.iter().filter(long).map(|m| m.bound.us / m.us).collect();
    let (middle, best) = (quantile(&mut of_bound, 0.5), quantile(&mut of_bound, 1.0));
    println!("of the bound: {middle:.3} in the middle, {best:.3} at most, of {} times above 50 us", of_bound.len());
    assert!(best > 0.75, "the bound is far from all that was measured: {best:.3}");
    // As `atlas explain` predicts: by the kernel's records, and never below the bound.
    let predicted = |m: &Measured| {
        let factor = |s: &Measured| Some(s.us / s.cycles?);
        let mut factors: Vec<f64> = shipped.iter().filter(|s| std::ptr::eq(s.def, m.def)).filter_map(factor).collect();
        factors.sort_by(f64::total_cmp);
        let middle = (factors.get(factors.len().saturating_sub(1) / 2)? * factors.get(factors.len() / 2)?).sqrt();
        Some((middle * m.cycles?).max(m.bound.us) / m.us)
    };
    let ratios: Vec<f64> = drawn.iter().filter_map(predicted).collect();
    let mut off: Vec<f64> = ratios.iter().map(|r| r.max(1.0 / r)).collect();
    let (middle, most) = (quantile(&mut off, 0.5), quantile(&mut off, 0.9));
    println!("predicted of {} sizes: off by {middle:.2} in the middle, by {most:.2} for one in ten", off.len());
    assert!(middle < 1.4 && most < 2.6, "{middle:.2} {most:.2}");
}
