//! The machine on which a measurement is taken.

use atlas_runtime::Device;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// GPU, driver, clocks, power, temperature, toolchain and date. Unknown values are null.
pub(super) fn host_info(device: &Device) -> Value {
    let fields = ["name", "driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "pstate"];
    let values = nvidia_smi(device.pci_address().unwrap_or("0"), &fields);
    let mut gpu = serde_json::Map::new();
    for (i, field) in fields.iter().enumerate() {
        let value = values.get(i).map_or(Value::Null, |v| json!(v));
        gpu.insert(field.replace('.', "_"), value);
    }
    json!({
        "device": device.id().to_string(),
        "gpu": gpu,
        "atlas": env!("CARGO_PKG_VERSION"),
        "llvm": if super::stages::CAN_COMPILE { json!("22") } else { Value::Null },
        "os": std::env::consts::OS,
        "cpu": std::env::consts::ARCH,
        "date": date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())),
    })
}

/// Fields that `nvidia-smi` reports for a GPU, given by its address or by nvidia-smi's own ordinal. Empty if there is
/// none.
pub(super) fn nvidia_smi(gpu: &str, fields: &[&str]) -> Vec<String> {
    let query = format!("--query-gpu={}", fields.join(","));
    let said = super::ptxas::printed(Command::new("nvidia-smi").args([&query, "--format=csv,noheader", "-i", gpu]));
    said.map_or_else(Vec::new, |said| said.trim().split(", ").map(str::to_owned).collect())
}

/// Seconds since 1970 as `2026-11-21T05:43:10Z`.
fn date(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Civil date from days (Hinnant): years begin in March, in eras of 400 years.
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_795_239_790), "2026-11-21T05:43:10Z");
    }
}
