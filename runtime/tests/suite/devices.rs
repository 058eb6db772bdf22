//! Devices that exist and devices that do not.

use atlas_runtime::{CacheDir, Device, DeviceError, DeviceId, RuntimeError};

#[test]
fn the_cpu_is_always_there() {
    let cpu = Device::cpu();
    assert_eq!((cpu.id(), cpu.name(), cpu.target(), cpu.capability()), (DeviceId::Cpu, "CPU", None, None));
    assert_eq!((cpu.to_string(), cpu.driver_version(), cpu.memory_bytes()), ("cpu".to_owned(), None, None));
    assert!(cpu.sm_count() > 0 && cpu.is_cpu());
    cpu.synchronize().unwrap();
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_with_a_mend() {
    let error = Device::cuda(4096).unwrap_err();
    let text = error.to_string();
    match error {
        RuntimeError::Device(DeviceError::NoDriver {}) => {
            assert!(text.starts_with("error[ATL620]: no NVIDIA driver: the library libcuda.so.1 cannot be loaded"));
            assert!(text.contains("install the driver") && text.contains("Device::cpu()"));
            assert_eq!(Device::best().unwrap(), Device::cpu());
        }
        RuntimeError::Device(DeviceError::NoSuchGpu { .. }) => {
            assert!(text.starts_with("error[ATL622]: there is no GPU 4096: this machine shows "));
        }
        RuntimeError::Device(e) => assert_eq!(e.code().to_string(), "ATL621"),
        other => panic!("{other}"),
    }
    assert!(Device::open(DeviceId::Cuda(4096), CacheDir::Off).is_err());
}
