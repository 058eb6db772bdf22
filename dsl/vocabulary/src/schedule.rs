//! The keys of a schedule and the values that any machine may take of each.

/// A key of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleKey {
    /// As configs and tune spaces spell it.
    pub name: &'static str,
    /// The largest value; `None` if the machine alone decides it. The least is 1.
    pub most: Option<u32>,
}

/// Every key, in the order of the canonical text of a config.
pub const SCHEDULE: [ScheduleKey; 3] = [
    ScheduleKey { name: "stages", most: Some(8) },
    // A CTA has at most 1024 threads on every GPU.
    ScheduleKey { name: "warps", most: Some(32) },
    ScheduleKey { name: "occupancy", most: None },
];

impl ScheduleKey {
    /// Why no machine takes a value of this key, if none does.
    pub fn refuses(&self, value: u32) -> Option<String> {
        let name = self.name;
        match self.most {
            Some(most) if !(1..=most).contains(&value) => Some(format!("{name} = {value} is not in 1..={most}")),
            None if value == 0 => Some(format!("{name} = {value} is not at least 1")),
            _ => None,
        }
    }
}
