//! A lock for each GPU, because two processes that measure on one GPU at the same time would disturb each other's
//! times.

use super::print::tell;
use anyhow::{Context, Result};
use atlas_runtime::{Device, files};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A name as part of a file name: `NVIDIA H200` becomes `nvidia-h200`.
pub(super) fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
}

/// Waits until no other process measures on a GPU, whatever ordinal that process uses for it. The lock is held until
/// the file is dropped.
///
/// # Errors
/// If the lock cannot be acquired.
pub(super) fn acquire(device: &Device) -> Result<File> {
    let id = device.id().to_string();
    let of = format!("{} {}", device.name(), device.pci_address().unwrap_or(&id));
    let path = std::env::temp_dir().join(format!("atlas-tune-{}.lock", slug(&of)));
    let (path, lock) = match files::shared_lock_file(&path) {
        Ok(lock) => (path, lock),
        // Anyone who can write to the folder of temporary files may have put anything there.
        Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {
            let own = of_user(&path);
            tell!(
                "warning: cannot lock {}: {e}; {} keeps out this user's processes alone",
                path.display(),
                own.display()
            );
            let lock = files::shared_lock_file(&own).or_else(|e| {
                tell!("warning: cannot lock {}: {e}; nothing keeps out other processes that measure", own.display());
                tempfile::tempfile()
            });
            let lock = lock.with_context(|| format!("cannot lock {}", own.display()))?;
            (own, lock)
        }
        Err(e) => return Err(e).with_context(|| format!("cannot lock {}", path.display())),
    };
    if lock.try_lock().is_err() {
        tell!("waiting for another process that measures on {id}");
        lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(lock)
}

/// A lock file of the user's own.
fn of_user(path: &Path) -> PathBuf {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    path.with_extension(format!("{}.lock", slug(&user.unwrap_or_else(|| "unknown".to_owned()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_locks_are_names_of_files() {
        assert_eq!(slug("NVIDIA H200 0000:0f:00.0"), "nvidia-h200-0000-0f-00-0");
        assert!(of_user(Path::new("/tmp/a.lock")).display().to_string().ends_with(".lock"));
    }

    /// A user who may only read the file gets the same lock.
    #[test]
    #[cfg(unix)]
    fn a_lock_that_another_user_made_is_waited_for() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("atlas-turn-{}.lock", std::process::id()));
        let first = files::shared_lock_file(&path).unwrap();
        first.lock().unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        assert!(files::shared_lock_file(&path).unwrap().try_lock().is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
