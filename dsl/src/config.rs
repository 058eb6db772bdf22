//! A kernel's configuration: tile sizes (which enter Tile IR) and a schedule (which does not).
//!
//! Plain data with a canonical text, `BH=64 BN=64 stages=3 warps=4`: tile sizes in name order, then the schedule's keys in the
//! order of its table. Keys that are not set are left out. Unknown keys are errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

pub use atlas_vocabulary::{
    Copies, MOST_CONFIGS, Operands, Order, Products, Programs, SCHEDULE, ScheduleKey, Setting, WarpGrid,
};

/// How a kernel is mapped to the machine. Enters GPU IR only. The compiler chooses whatever is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Schedule {
    /// Buffers in flight in a pipelined loop; 1 means no overlap.
    pub stages: u32,
    /// Warps of one CTA.
    pub warps: u32,
    /// CTAs that must fit on a multiprocessor at once. This limits the registers of a thread.
    pub occupancy: u32,
    /// How the warps divide the tile of each product among them. All warps take part.
    pub warp_grid: Option<WarpGrid>,
    /// The order in which programs run.
    pub order: Option<Order>,
    /// Who copies the tiles that products read.
    pub copies: Option<Copies>,
    /// Who stores tiles.
    pub stores: Option<Copies>,
    /// Who makes products.
    pub products: Option<Products>,
    /// How many programs a CTA runs.
    pub programs: Option<Programs>,
    /// CTAs that share the iterations of each program's reduction and add their sums.
    pub split_k: u32,
    /// Where products read their operands.
    pub operands: Option<Operands>,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            stages: 2,
            warps: 4,
            occupancy: 1,
            warp_grid: None,
            order: None,
            copies: None,
            stores: None,
            products: None,
            programs: None,
            split_k: 1,
            operands: None,
        }
    }
}

impl Schedule {
    /// The schedule's keys, which no tile size may use as its name.
    pub const KEYS: [&'static str; SCHEDULE.len()] = {
        let mut names = [""; SCHEDULE.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = SCHEDULE[i].name;
            i += 1;
        }
        names
    };

    /// Sets a key. Returns false if there is no such key or it does not take the value.
    pub fn set(&mut self, key: &str, value: impl Into<Setting>) -> bool {
        match (key, value.into()) {
            ("stages", Setting::Number(n)) => self.stages = n,
            ("warps", Setting::Number(n)) => self.warps = n,
            ("occupancy", Setting::Number(n)) => self.occupancy = n,
            ("warp_grid", Setting::WarpGrid(grid)) => self.warp_grid = grid,
            ("order", Setting::Order(order)) => self.order = order,
            ("copies", Setting::Copies(copies)) => self.copies = copies,
            ("stores", Setting::Copies(stores)) => self.stores = stores,
            ("products", Setting::Products(products)) => self.products = products,
            ("programs", Setting::Programs(programs)) => self.programs = programs,
            ("split_k", Setting::Number(n)) => self.split_k = n,
            ("operands", Setting::Operands(operands)) => self.operands = operands,
            _ => return false,
        }
        true
    }

    /// Reads a key.
    pub fn get(&self, key: &str) -> Option<Setting> {
        Some(match key {
            "stages" => Setting::Number(self.stages),
            "warps" => Setting::Number(self.warps),
            "occupancy" => Setting::Number(self.occupancy),
            "warp_grid" => Setting::WarpGrid(self.warp_grid),
            "order" => Setting::Order(self.order),
            "copies" => Setting::Copies(self.copies),
            "stores" => Setting::Copies(self.stores),
            "products" => Setting::Products(self.products),
            "programs" => Setting::Programs(self.programs),
            "split_k" => Setting::Number(self.split_k),
            "operands" => Setting::Operands(self.operands),
            _ => return None,
        })
    }

    /// Refuses what no machine can run, whatever the kernel. The answer is the same on every device, even on the CPU, which
    /// needs no schedule.
    ///
    /// # Errors
    /// Names the key, its value and the values it may have.
    pub fn check(&self) -> Result<(), String> {
        let refused = |key: &ScheduleKey| self.get(key.name).and_then(|value| key.refuses(value));
        if let Some(why) = SCHEDULE.iter().find_map(refused) {
            return Err(why);
        }
        self.contradiction().map_or(Ok(()), Err)
    }

    /// True if products read packed copies of their operands, so that a launch has several kernels.
    pub fn packs_operands(&self) -> bool {
        self.operands == Some(Operands::Packed)
    }

    /// True if no two keys contradict each other. Each key alone may still have a value that no machine runs.
    pub fn is_consistent(&self) -> bool {
        self.contradiction().is_none()
    }

    fn contradiction(&self) -> Option<String> {
        if self.split_k > 1 && self.programs == Some(Programs::Persistent) {
            return Some(format!(
                "split_k = {} and programs = persistent: CTAs that share a program run one each; use programs=single or split_k=1",
                self.split_k
            ));
        }
        let grid = self.warp_grid.filter(|grid| grid.warps() != self.warps)?;
        Some(format!("warp_grid = {grid} has {} warps, but warps = {}", grid.warps(), self.warps))
    }

    /// Numbers that tell two schedules apart.
    pub fn words(&self) -> [u64; 11] {
        let Schedule { stages, warps, occupancy, warp_grid, order, copies, stores, .. } = *self;
        let Schedule { products, programs, split_k, operands, .. } = *self;
        let grid = warp_grid.map_or(0, |g| u64::from(g.rows) << 32 | u64::from(g.cols));
        let order = match order {
            None => 0,
            Some(Order::Linear) => 1,
            Some(Order::Groups(rows)) => 2 + u64::from(rows),
        };
        let by = |mover: Option<Copies>| match mover {
            None => 0,
            Some(Copies::Threads) => 1,
            Some(Copies::Engine) => 2,
        };
        let products = match products {
            None => 0,
            Some(Products::Warps) => 1,
            Some(Products::Warpgroups) => 2,
        };
        let programs = match programs {
            None => 0,
            Some(Programs::Single) => 1,
            Some(Programs::Persistent) => 2,
        };
        let operands = match operands {
            None => 0,
            Some(Operands::Direct) => 1,
            Some(Operands::Packed) => 2,
        };
        [
            stages.into(),
            warps.into(),
            occupancy.into(),
            grid,
            order,
            by(copies),
            by(stores),
            products,
            programs,
            split_k.into(),
            operands,
        ]
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stages={} warps={}", self.stages, self.warps)?;
        let unset = Schedule::default();
        for key in SCHEDULE.iter().skip(2) {
            let value = self.get(key.name);
            if let (Some(value), true) = (value, value != unset.get(key.name)) {
                write!(f, " {}={value}", key.name)?;
            }
        }
        Ok(())
    }
}

/// One point of a kernel's tune space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config {
    /// Tile sizes by name.
    pub tile: BTreeMap<String, u32>,
    /// The schedule.
    pub schedule: Schedule,
}

impl Config {
    /// Sets a tile size or a schedule key. Returns false and sets nothing if the key does not take the value.
    pub fn set(&mut self, key: &str, value: impl Into<Setting>) -> bool {
        match (Schedule::KEYS.contains(&key), value.into()) {
            (true, value) => self.schedule.set(key, value),
            (false, Setting::Number(n)) => {
                self.tile.insert(key.to_owned(), n);
                true
            }
            (false, _) => false,
        }
    }

    /// Builder form of [`Config::set`]; a value that the key does not take is ignored.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Setting>) -> Config {
        self.set(key, value);
        self
    }

    /// Reads a tile size or a schedule key.
    pub fn get(&self, key: &str) -> Option<Setting> {
        self.schedule.get(key).or_else(|| self.tile.get(key).map(|&n| n.into()))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, size) in &self.tile {
            write!(f, "{name}={size} ")?;
        }
        self.schedule.fmt(f)
    }
}

/// Why a text is no [`Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

impl FromStr for Config {
    type Err = ConfigError;

    /// Parses `KEY=VALUE` pairs separated by spaces or commas.
    fn from_str(text: &str) -> Result<Config, ConfigError> {
        let (mut config, mut set) = (Config::default(), BTreeSet::new());
        for pair in text.split([' ', ',']).filter(|p| !p.is_empty()) {
            let (key, value) = match pair.split_once('=') {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => (key, value),
                _ => return Err(ConfigError(format!("`{pair}` is not KEY=VALUE{}", no_pair(text, pair)))),
            };
            if !set.insert(key) {
                return Err(ConfigError(format!("`{key}` is set twice")));
            }
            let value = match ScheduleKey::named(key) {
                Some(key) => key.read(value).map_err(ConfigError)?,
                None => {
                    let ends = if value.contains(';') { "; pairs are separated by spaces or commas" } else { "" };
                    let why = |e| ConfigError(format!("`{value}` in `{pair}` {}{ends}", not_a_size(&e)));
                    Setting::Number(value.parse::<u32>().map_err(why)?)
                }
            };
            config.set(key, value);
        }
        Ok(config)
    }
}

/// What to write instead of a pair that is none.
fn no_pair(text: &str, pair: &str) -> &'static str {
    if pair.contains('=') || text.contains(" =") || text.contains("= ") {
        ": no spaces stand around the `=`"
    } else if pair.contains(':') {
        ": write it with `=`"
    } else {
        ""
    }
}

fn not_a_size(why: &std::num::ParseIntError) -> String {
    match why.kind() {
        std::num::IntErrorKind::PosOverflow => format!("is more than {}", u32::MAX),
        _ => "is not a whole number".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_no_machine_runs_is_refused() {
        let check = |text: &str| text.parse::<Config>().unwrap().schedule.check();
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("stages=8 warps=32 occupancy=64"), Ok(()));
        assert_eq!(check("stages=0"), Err("stages = 0 is not in 1..=8".to_owned()));
        assert_eq!(check("warps=64"), Err("warps = 64 is not in 1..=32".to_owned()));
        assert_eq!(check("occupancy=0"), Err("occupancy = 0 is not at least 1".to_owned()));
        assert_eq!(check("warps=8 warp_grid=2x4"), Ok(()));
        assert_eq!(check("warps=4 warp_grid=2x4"), Err("warp_grid = 2x4 has 8 warps, but warps = 4".to_owned()));
        let both = check("programs=persistent split_k=2").unwrap_err();
        assert!(both.ends_with("run one each; use programs=single or split_k=1"), "{both}");
        assert_eq!(check("programs=single split_k=2"), Ok(()));
        assert_eq!(check("programs=persistent split_k=1"), Ok(()));
        assert_eq!(check("order=groups(0)"), Err("order = groups(0) has groups of no rows".to_owned()));
        assert!(Schedule::KEYS.iter().all(|key| Schedule::default().get(key).is_some()));
    }

    #[test]
    fn a_config_is_read_as_it_is_printed() {
        for text in [
            "BN=64 stages=3 warps=8",
            "stages=2 warps=4 occupancy=2",
            "BK=32 stages=2 warps=8 warp_grid=2x4 order=groups(16)",
            "stages=2 warps=4 order=linear",
            "stages=2 warps=4 copies=engine stores=threads",
            "stages=2 warps=4 products=warps",
        ] {
            let config: Config = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
            let keys = Schedule::KEYS.map(|key| (key, config.get(key).unwrap()));
            let again = keys
                .into_iter()
                .fold(Config { tile: config.tile.clone(), ..Config::default() }, |c, (k, v)| c.with(k, v));
            assert_eq!(again, config);
        }
        assert!(!Config::default().set("BN", Setting::WarpGrid(None)) && !Config::default().set("order", 4));
        assert_eq!("BN=32 BN=64".parse::<Config>(), Err(ConfigError("`BN` is set twice".to_owned())));
        for (text, want) in [
            ("BN=4294967296", "`4294967296` in `BN=4294967296` is more than 4294967295"),
            ("BN=100000000000000", "`100000000000000` in `BN=100000000000000` is more than 4294967295"),
            ("BN=-1", "`-1` in `BN=-1` is not a whole number"),
            ("BN", "`BN` is not KEY=VALUE"),
            ("BN = 16", "`BN` is not KEY=VALUE: no spaces stand around the `=`"),
            ("BN= 16", "`BN=` is not KEY=VALUE: no spaces stand around the `=`"),
            ("BN:16", "`BN:16` is not KEY=VALUE: write it with `=`"),
            (
                "BN=16;BD=32",
                "`16;BD=32` in `BN=16;BD=32` is not a whole number; pairs are separated by spaces or commas",
            ),
            ("warps=4294967296", "`4294967296` is more than 4294967295, and `warps` takes a whole number"),
        ] {
            assert_eq!(text.parse::<Config>(), Err(ConfigError(want.to_owned())));
        }
        assert!("BN=linear".parse::<Config>().is_err() && "warps=linear".parse::<Config>().is_err());
    }

    #[test]
    fn schedules_that_differ_have_other_words() {
        let texts = [
            "",
            "stages=3",
            "warps=8",
            "occupancy=2",
            "warp_grid=2x2",
            "warp_grid=1x4",
            "order=linear",
            "order=groups(1)",
            "copies=engine",
            "stores=engine",
            "copies=engine stores=threads",
            "products=warps",
            "products=warpgroups",
            "programs=single",
            "programs=persistent",
            "split_k=4",
            "operands=direct",
            "operands=packed",
        ];
        let words = texts.map(|text| text.parse::<Config>().unwrap().schedule.words());
        let distinct: std::collections::BTreeSet<_> = words.iter().collect();
        assert_eq!(distinct.len(), texts.len());
    }
}
