//! The keys of a schedule, their possible values, and how these are written.

use crate::distance;
use std::fmt;
use std::num::IntErrorKind;

/// The most configs of one kernel, that is, the product of its knobs. The first launch of a kernel builds and ranks all of them
/// on all cores, which takes some seconds for this many. The largest tune space that ships has 1920.
pub const MOST_CONFIGS: u64 = 4096;

/// How the warps of a CTA divide the tile of a product: `rows` warps along its rows and `cols` along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WarpGrid {
    /// Warps along the rows. With `r` of them, each has every r-th block of rows.
    pub rows: u32,
    /// Warps along the columns. Each has a contiguous range of them.
    pub cols: u32,
}

impl WarpGrid {
    /// The number of warps.
    pub fn warps(self) -> u32 {
        self.rows.saturating_mul(self.cols)
    }
}

/// The order in which the programs of a launch run, as far as the GPU keeps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// The last axis of the grid varies fastest.
    Linear,
    /// Groups of this many rows of the last two axes, column by column, so that the operands of both are read again while they
    /// are in L2.
    Groups(u32),
}

/// Who moves tiles: those that products read from global to shared memory, or those that are stored from there to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Copies {
    /// The threads of the CTA, at most 16 bytes each at a time.
    Threads,
    /// The tensor copy engine, where the target has one and the tensor fits it. Threads move the tiles of other tensors.
    Engine,
}

impl Copies {
    /// All of them.
    const ALL: [Copies; 2] = [Copies::Threads, Copies::Engine];
}

/// Who makes the products of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Products {
    /// Each warp its own part, which it waits for: `mma.sync`.
    Warps,
    /// Warpgroups, asynchronously, by `wgmma`, where the target has it and the product fits it, however short it is.
    Warpgroups,
}

impl Products {
    /// All of them.
    const ALL: [Products; 2] = [Products::Warps, Products::Warpgroups];
}

/// Where products read operands that the copy engine or the tensor cores cannot take as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operands {
    /// Where they are. Threads copy them, and split them for products of split numbers.
    Direct,
    /// In packed copies: kernels before this one copy each operand to a workspace, where the copy engine takes it.
    Packed,
}

impl Operands {
    /// All of them.
    const ALL: [Operands; 2] = [Operands::Direct, Operands::Packed];
}

/// How many programs a CTA runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Programs {
    /// One: a launch has a CTA for each program.
    Single,
    /// One after the other: a launch has as many CTAs as the GPU holds at once. The copy engine fetches the first tiles of the next
    /// program while a program multiplies its last ones and stores.
    Persistent,
}

impl Programs {
    /// All of them.
    const ALL: [Programs; 2] = [Programs::Single, Programs::Persistent];
}

/// The value of a knob. `None` leaves it to the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Setting {
    /// A tile size, or a number of stages, warps or CTAs.
    Number(u32),
    /// A grid of warps.
    WarpGrid(Option<WarpGrid>),
    /// An order of programs.
    Order(Option<Order>),
    /// Who copies, or who stores.
    Copies(Option<Copies>),
    /// Who multiplies.
    Products(Option<Products>),
    /// How many programs a CTA runs.
    Programs(Option<Programs>),
    /// Where products read their operands.
    Operands(Option<Operands>),
}

impl Setting {
    /// The word that leaves a choice to the compiler.
    const AUTO: &str = "auto";
}

impl From<u32> for Setting {
    fn from(number: u32) -> Setting {
        Setting::Number(number)
    }
}

impl fmt::Display for WarpGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.cols)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Linear => f.write_str("linear"),
            Order::Groups(rows) => write!(f, "groups({rows})"),
        }
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Copies::Threads => "threads",
            Copies::Engine => "engine",
        })
    }
}

impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Products::Warps => "warps",
            Products::Warpgroups => "warpgroups",
        })
    }
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Programs::Single => "single",
            Programs::Persistent => "persistent",
        })
    }
}

impl fmt::Display for Operands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operands::Direct => "direct",
            Operands::Packed => "packed",
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(n) => n.fmt(f),
            Setting::WarpGrid(Some(grid)) => grid.fmt(f),
            Setting::Order(Some(order)) => order.fmt(f),
            Setting::Copies(Some(copies)) => copies.fmt(f),
            Setting::Products(Some(products)) => products.fmt(f),
            Setting::Programs(Some(programs)) => programs.fmt(f),
            Setting::Operands(Some(operands)) => operands.fmt(f),
            Setting::WarpGrid(None) | Setting::Order(None) | Setting::Copies(None) => f.write_str(Setting::AUTO),
            Setting::Products(None) | Setting::Programs(None) | Setting::Operands(None) => f.write_str(Setting::AUTO),
        }
    }
}

/// The possible values of a key.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// A number from 1. `None` if only the machine limits it.
    Number(Option<u32>),
    WarpGrid,
    Order,
    Copies,
    Products,
    Programs,
    Operands,
}

/// A key of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleKey {
    /// The spelling in configs and tune spaces.
    pub name: &'static str,
    values: Values,
}

/// Every key, in the order of the canonical text of a config.
pub const SCHEDULE: [ScheduleKey; 11] = [
    ScheduleKey { name: "stages", values: Values::Number(Some(8)) },
    // A CTA has at most 1024 threads on every GPU.
    ScheduleKey { name: "warps", values: Values::Number(Some(32)) },
    ScheduleKey { name: "occupancy", values: Values::Number(None) },
    ScheduleKey { name: "warp_grid", values: Values::WarpGrid },
    ScheduleKey { name: "order", values: Values::Order },
    ScheduleKey { name: "copies", values: Values::Copies },
    ScheduleKey { name: "stores", values: Values::Copies },
    ScheduleKey { name: "products", values: Values::Products },
    ScheduleKey { name: "programs", values: Values::Programs },
    // The last CTA of a program reads the parts of all. No product that was measured gains by more than eight.
    ScheduleKey { name: "split_k", values: Values::Number(Some(16)) },
    ScheduleKey { name: "operands", values: Values::Operands },
];

/// The value that is written like this.
fn named<T: Copy + fmt::Display>(all: &[T], text: &str) -> Option<T> {
    all.iter().copied().find(|value| value.to_string() == text)
}

/// What to say of a name that is no key: that of another language's key, or one that is spelled nearly as a key is.
pub fn key_elsewhere(name: &str) -> String {
    let limit = name.len() / 3;
    let key = match name {
        "num_warps" | "nwarps" => Some("warps"),
        "num_stages" | "pipeline" | "depth" => Some("stages"),
        "maxnreg" | "maxregs" | "maxrregcount" | "minblocks" => Some("occupancy"),
        "splitk" | "split" => Some("split_k"),
        "persistent" => Some("programs"),
        "tma" => Some("copies"),
        "wgmma" => Some("products"),
        _ => {
            let near = SCHEDULE.iter().map(|key| (distance(name, key.name), key.name));
            near.filter(|&(d, _)| (1..=limit).contains(&d)).min().map(|(_, key)| key)
        }
    };
    key.map_or_else(String::new, |key| format!("; did you mean `{key}`?"))
}

impl ScheduleKey {
    /// The key with a name.
    pub fn named(name: &str) -> Option<&'static ScheduleKey> {
        SCHEDULE.iter().find(|key| key.name == name)
    }

    /// The possible values of the key, for people.
    pub fn expects(&self) -> &'static str {
        match self.values {
            Values::Number(_) => "a whole number",
            Values::WarpGrid => "a grid of warps such as `2x4`, or `auto`",
            Values::Order => "`linear`, groups of rows such as `groups(8)`, or `auto`",
            Values::Copies => "`threads`, `engine` or `auto`",
            Values::Products => "`warps`, `warpgroups` or `auto`",
            Values::Programs => "`single`, `persistent` or `auto`",
            Values::Operands => "`direct`, `packed` or `auto`",
        }
    }

    /// A value from its text.
    ///
    /// # Errors
    /// The possible values of the key.
    pub fn read(&self, text: &str) -> Result<Setting, String> {
        let number = |text: &str| text.parse::<u32>().ok();
        let read = match self.values {
            Values::Number(_) => number(text).map(Setting::Number),
            Values::WarpGrid if text == Setting::AUTO => Some(Setting::WarpGrid(None)),
            Values::Order if text == Setting::AUTO => Some(Setting::Order(None)),
            Values::Copies if text == Setting::AUTO => Some(Setting::Copies(None)),
            Values::Products if text == Setting::AUTO => Some(Setting::Products(None)),
            Values::Programs if text == Setting::AUTO => Some(Setting::Programs(None)),
            Values::Operands if text == Setting::AUTO => Some(Setting::Operands(None)),
            Values::Operands => named(&Operands::ALL, text).map(|operands| Setting::Operands(Some(operands))),
            Values::Programs => named(&Programs::ALL, text).map(|programs| Setting::Programs(Some(programs))),
            Values::Products => named(&Products::ALL, text).map(|products| Setting::Products(Some(products))),
            Values::Copies => named(&Copies::ALL, text).map(|copies| Setting::Copies(Some(copies))),
            Values::WarpGrid => text.split_once('x').and_then(|(rows, cols)| {
                Some(Setting::WarpGrid(Some(WarpGrid { rows: number(rows)?, cols: number(cols)? })))
            }),
            Values::Order if text == Order::Linear.to_string() => Some(Setting::Order(Some(Order::Linear))),
            Values::Order => {
                let rows = text.strip_prefix("groups(").and_then(|rest| number(rest.strip_suffix(')')?));
                rows.map(|rows| Setting::Order(Some(Order::Groups(rows))))
            }
        };
        let is_large = || text.parse::<u32>().is_err_and(|e| *e.kind() == IntErrorKind::PosOverflow);
        if read.is_none() && matches!(self.values, Values::Number(_)) && is_large() {
            return Err(format!("`{text}` is more than {}, and `{}` takes {}", u32::MAX, self.name, self.expects()));
        }
        read.ok_or_else(|| format!("`{text}` is not {}, which `{}` takes", self.expects(), self.name))
    }

    /// Why no machine takes a value of this key, if so.
    pub fn refuses(&self, value: Setting) -> Option<String> {
        let name = self.name;
        match (self.values, value) {
            (Values::Number(Some(most)), Setting::Number(n)) if !(1..=most).contains(&n) => {
                Some(format!("{name} = {n} is not in 1..={most}"))
            }
            (Values::Number(None), Setting::Number(0)) => Some(format!("{name} = 0 is not at least 1")),
            (Values::WarpGrid, Setting::WarpGrid(Some(grid))) if grid.warps() == 0 => {
                Some(format!("{name} = {grid} has no warps"))
            }
            (Values::Order, Setting::Order(Some(Order::Groups(0)))) => {
                Some(format!("{name} = {value} has groups of no rows"))
            }
            (Values::Number(_), Setting::Number(_))
            | (Values::WarpGrid, Setting::WarpGrid(_))
            | (Values::Order, Setting::Order(_))
            | (Values::Copies, Setting::Copies(_))
            | (Values::Products, Setting::Products(_))
            | (Values::Programs, Setting::Programs(_))
            | (Values::Operands, Setting::Operands(_)) => None,
            _ => Some(format!("{name} = {value} is not {}", self.expects())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_printed() {
        for (key, text) in [
            ("stages", "3"),
            ("warp_grid", "2x4"),
            ("warp_grid", "auto"),
            ("order", "linear"),
            ("order", "groups(8)"),
            ("order", "auto"),
            ("copies", "threads"),
            ("copies", "engine"),
            ("copies", "auto"),
            ("stores", "engine"),
            ("stores", "auto"),
            ("products", "warps"),
            ("products", "warpgroups"),
            ("products", "auto"),
            ("programs", "single"),
            ("programs", "persistent"),
            ("programs", "auto"),
            ("split_k", "4"),
            ("operands", "direct"),
            ("operands", "packed"),
            ("operands", "auto"),
        ] {
            let key = ScheduleKey::named(key).unwrap();
            let read = key.read(text).unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(key.refuses(read), None);
        }
    }

    #[test]
    fn another_value_is_told_what_the_key_takes() {
        let read = |key: &str, text: &str| ScheduleKey::named(key).unwrap().read(text).unwrap_err();
        assert_eq!(read("warps", "2x4"), "`2x4` is not a whole number, which `warps` takes");
        assert!(read("warp_grid", "8").starts_with("`8` is not a grid of warps such as `2x4`"));
        assert!(read("warp_grid", "2x").contains("`2x` is not a grid"));
        assert!(read("order", "groups(x)").contains("groups of rows such as `groups(8)`"));
        let grid = Setting::WarpGrid(Some(WarpGrid { rows: 0, cols: 4 }));
        assert_eq!(ScheduleKey::named("warp_grid").unwrap().refuses(grid).unwrap(), "warp_grid = 0x4 has no warps");
        assert!(ScheduleKey::named("order").unwrap().refuses(Setting::Number(8)).is_some());
    }
}
