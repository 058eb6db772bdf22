//! Tuning records that ship: which configs were best at the sizes that `atlas bench` measures, of each GPU that was at hand.
//!
//! `ATLAS_RECORD_SIZES=sizes.toml atlas bench && atlas tune --sizes sizes.toml --records ops/records` writes them.

/// Makes the records of kernels on a GPU part of the program.
macro_rules! shipped {
    ($folder:literal: $($kernel:literal)*) => {
        $(
            atlas_runtime::records::inventory::submit! {
                atlas_runtime::records::ShippedRecord {
                    origin: concat!("ops/records/", $folder, "/", $kernel, ".toml"),
                    text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/records/", $folder, "/", $kernel, ".toml")),
                }
            }
        )*
    };
}

pub(crate) use shipped;

#[cfg(test)]
mod tests {
    use atlas_runtime::records::{Record, Records, ShippedRecord, inventory};

    /// The GPUs that have records: their folders and names.
    const GPUS: [(&str, &str); 2] =
        [("nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3"), ("nvidia-h200", "NVIDIA H200")];

    /// The kernels that have a record of a GPU.
    fn kernels(folder: &str) -> Vec<&'static str> {
        let of_gpu = |r: &'static ShippedRecord| {
            r.origin.strip_prefix("ops/records/")?.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".toml")
        };
        let mut all: Vec<&str> = inventory::iter::<ShippedRecord>.into_iter().filter_map(of_gpu).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn every_file_ships_and_is_a_record() {
        for (folder, gpu) in GPUS {
            let path = format!("{}/records/{folder}", env!("CARGO_MANIFEST_DIR"));
            let mut files: Vec<String> = std::fs::read_dir(&path)
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
                .collect();
            files.sort();
            assert_eq!(files, kernels(folder));
            for name in files {
                let text = std::fs::read_to_string(format!("{path}/{name}.toml")).unwrap();
                let record = Record::parse(&name, &text).unwrap();
                assert_eq!((record.kernel, record.gpu.as_str()), (name, gpu));
            }
        }
    }

    #[test]
    fn they_are_part_of_the_program() {
        for (folder, gpu) in GPUS {
            let records = Records::of_gpu(gpu);
            assert!(records.problems().is_empty(), "{:?}", records.problems());
            assert!(kernels(folder).iter().all(|name| records.of_kernel(name).is_some()));
        }
    }
}
