//! A kernel's configuration: tile sizes (which enter Tile IR) and a schedule (which does not).
//!
//! Plain data with a canonical text, `BH=64 BN=64 stages=3 warps=4`: tile sizes in name order, then
//! the schedule's keys in declaration order, `occupancy` only where it is not 1. Unknown keys are errors.

use atlas_vocabulary::{SCHEDULE, ScheduleKey};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How a kernel is laid on the machine. Enters GPU IR only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Schedule {
    /// Buffers in flight in a pipelined loop; 1 means no overlap.
    pub stages: u32,
    /// Warps of one CTA.
    pub warps: u32,
    /// CTAs that a multiprocessor must have room for at once, which limits the registers of a thread.
    pub occupancy: u32,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { stages: 2, warps: 4, occupancy: 1 }
    }
}

impl Schedule {
    /// The schedule's keys, which no tile size may use as its name.
    pub const KEYS: [&'static str; 3] = [SCHEDULE[0].name, SCHEDULE[1].name, SCHEDULE[2].name];

    /// Sets a key; false if there is no such key.
    pub fn set(&mut self, key: &str, value: u32) -> bool {
        match key {
            "stages" => self.stages = value,
            "warps" => self.warps = value,
            "occupancy" => self.occupancy = value,
            _ => return false,
        }
        true
    }

    /// Refuses what no machine can run, whatever the kernel: the same on every device, the CPU too, which needs no schedule.
    ///
    /// # Errors
    /// The key, its value and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let refused = |key: &ScheduleKey| self.get(key.name).and_then(|value| key.refuses(value));
        SCHEDULE.iter().find_map(refused).map_or(Ok(()), Err)
    }

    /// Reads a key.
    pub fn get(&self, key: &str) -> Option<u32> {
        match key {
            "stages" => Some(self.stages),
            "warps" => Some(self.warps),
            "occupancy" => Some(self.occupancy),
            _ => None,
        }
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
    /// Sets a tile size or a schedule key.
    pub fn set(&mut self, key: &str, value: u32) {
        if !self.schedule.set(key, value) {
            self.tile.insert(key.to_owned(), value);
        }
    }

    /// Builder form of [`Config::set`].
    #[must_use]
    pub fn with(mut self, key: &str, value: u32) -> Config {
        self.set(key, value);
        self
    }

    /// Reads a tile size or a schedule key.
    pub fn get(&self, key: &str) -> Option<u32> {
        self.schedule.get(key).or_else(|| self.tile.get(key).copied())
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, size) in &self.tile {
            write!(f, "{name}={size} ")?;
        }
        write!(f, "stages={} warps={}", self.schedule.stages, self.schedule.warps)?;
        if self.schedule.occupancy != Schedule::default().occupancy {
            write!(f, " occupancy={}", self.schedule.occupancy)?;
        }
        Ok(())
    }
}

impl FromStr for Config {
    type Err = String;

    /// Parses `KEY=NUMBER` pairs separated by spaces or commas.
    fn from_str(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        for pair in text.split([' ', ',']).filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not KEY=NUMBER"))?;
            let value = value.parse().map_err(|_| format!("`{value}` in `{pair}` is not a whole number"))?;
            config.set(key, value);
        }
        Ok(config)
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
        assert!(Schedule::KEYS.iter().all(|key| Schedule::default().get(key).is_some()));
    }
}
