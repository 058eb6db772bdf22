//! Launches of chains: their workspaces, and chains by workspace or prepared.

use crate::calls::{Arguments, AtlasArg, NamedChain, arguments};
use crate::chains::find;
use crate::device::{AtlasDevice, AtlasStream};
use crate::status::{AtlasStatus, Failure, Result, give, handle, status, text};
use atlas::Device;
use atlas::device::Stream;
use atlas::kernel::{PreparedChain, Workspace};
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The size of a dim, by its name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasSize {
    /// The name of the dim, such as `L`.
    pub name: *const c_char,
    /// How large it is.
    pub size: usize,
}

/// A chain and the tensors that its kernels pass to each other, for arguments of some sizes. It serves one run at a time: calls from
/// several threads follow each other, but launches on several streams race unless the caller orders them.
pub struct AtlasWorkspace {
    of: &'static NamedChain,
    device: Device,
    space: Mutex<Workspace>,
}

/// A chain that is ready for one problem: sizes, strides, types and alignments of its arguments.
pub struct AtlasPreparedChain(&'static NamedChain, PreparedChain);

impl AtlasWorkspace {
    fn space(&self) -> MutexGuard<'_, Workspace> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of a launch.
    ///
    /// # Safety
    /// It is null, or open.
    unsafe fn stream(&self, stream: *const AtlasStream) -> Result<Stream> {
        // SAFETY: the caller's promise.
        match unsafe { stream.as_ref() } {
            Some(stream) if *stream.0.device() == self.device => Ok(stream.0.clone()),
            Some(stream) => {
                let (found, wanted) = (stream.0.device().id(), self.device.id());
                Err(Failure::misuse(format_args!("the stream is of {found}, but the workspace is on {wanted}")))
            }
            None => Ok(self.device.default_stream()),
        }
    }

    /// # Safety
    /// As `atlas_launch`.
    unsafe fn arguments(&self, args: *const AtlasArg, count: usize) -> Result<Arguments> {
        // SAFETY: the caller's promise.
        unsafe { arguments(&self.device, self.of, args, count) }
    }
}

/// Allocates the workspace of a chain, for launches with such arguments. Nothing runs, and elements are neither read nor written.
/// `sizes` has those dims that stand behind the semicolon of the chain's signature. Memory is allocated on the device's default
/// stream, and there when this returns. If it fails, `*workspace` is null.
///
/// # Safety
/// As `atlas_launch`. `sizes` has `size_count` sizes, whose names end with a zero byte; `workspace` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_chain_workspace(
    device: *const AtlasDevice,
    chain: *const c_char,
    args: *const AtlasArg,
    count: usize,
    sizes: *const AtlasSize,
    size_count: usize,
    workspace: *mut *mut AtlasWorkspace,
) -> AtlasStatus {
    status(|| {
        let make = || {
            // SAFETY: the caller's promise, here and below.
            let (device, of) = unsafe { (&handle("device", device)?.0, find(chain)?) };
            // SAFETY: as above.
            let mut arguments = unsafe { arguments(device, of, args, count) }?;
            let sizes = match (sizes.is_null(), size_count) {
                (_, 0) => &[][..],
                (true, _) => return Err(Failure::misuse("the sizes are null")),
                // SAFETY: as above.
                (false, _) => unsafe { std::slice::from_raw_parts(sizes, size_count) },
            };
            // SAFETY: as above.
            let name = |size: &AtlasSize| Ok((unsafe { text("name of a dim", size.name) }?, size.size));
            let sizes = sizes.iter().map(name).collect::<Result<Vec<_>>>()?;
            let space = of.chain().workspace_for(device, &arguments.list(), &sizes)?;
            // Its memory may be used on any stream from now on.
            device.default_stream().synchronize()?;
            Ok(AtlasWorkspace { of, device: device.clone(), space: Mutex::new(space) })
        };
        // SAFETY: as above.
        unsafe { give(workspace, make) }
    })
}

/// The bytes that a workspace takes on its device; 0 for null.
///
/// # Safety
/// It came from `atlas_chain_workspace`, and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_workspace_bytes(workspace: *const AtlasWorkspace) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { workspace.as_ref() }.map_or(0, |workspace| workspace.space().bytes())
}

/// Closes a workspace. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run before.
/// Null is ignored.
///
/// # Safety
/// It came from `atlas_chain_workspace`, and is not used again, nor is a CUDA graph that recorded its launches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_workspace_close(workspace: *mut AtlasWorkspace) {
    if !workspace.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(workspace) });
    }
}

/// Launches the kernels of a chain one after the other: on a stream of `atlas_stream_open`, or on the device's default stream if that is
/// null. All arguments are checked, and all kernels are loaded, before the first one runs: if something does not fit, nothing is
/// written.
///
/// # Safety
/// As `atlas_launch`; the workspace is open, and no other work that uses it runs at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_chain_launch(
    workspace: *const AtlasWorkspace,
    stream: *const AtlasStream,
    args: *const AtlasArg,
    count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let workspace = unsafe { handle("workspace", workspace) }?;
        // SAFETY: as above.
        let (stream, mut arguments) = unsafe { (workspace.stream(stream)?, workspace.arguments(args, count)?) };
        Ok(workspace.of.chain().launch_on(&stream, arguments.list(), &mut workspace.space())?)
    })
}

/// Makes a chain ready for arguments such as these: chooses the config of each kernel and loads its code. Nothing runs. A CUDA graph may
/// record launches of the result, and both the result and the workspace live as long as the graph. If it fails, `*prepared` is null.
///
/// # Safety
/// As `atlas_chain_launch`; `prepared` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_chain_prepare(
    workspace: *const AtlasWorkspace,
    args: *const AtlasArg,
    count: usize,
    prepared: *mut *mut AtlasPreparedChain,
) -> AtlasStatus {
    status(|| {
        let ready = || {
            // SAFETY: the caller's promise, here and below.
            let workspace = unsafe { handle("workspace", workspace) }?;
            // SAFETY: as above.
            let mut arguments = unsafe { workspace.arguments(args, count) }?;
            let chain = workspace.of.chain();
            let ready = chain.prepare(&workspace.device, arguments.list(), &mut workspace.space())?;
            Ok(AtlasPreparedChain(workspace.of, ready))
        };
        // SAFETY: as above.
        unsafe { give(prepared, ready) }
    })
}

/// Launches a prepared chain with arguments of the same sizes, strides, types and alignments, and with a workspace for them.
///
/// # Safety
/// As `atlas_chain_launch`; `prepared` came from `atlas_chain_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepared_chain_launch(
    prepared: *const AtlasPreparedChain,
    workspace: *const AtlasWorkspace,
    stream: *const AtlasStream,
    args: *const AtlasArg,
    count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let AtlasPreparedChain(of, prepared) = unsafe { handle("prepared chain", prepared) }?;
        // SAFETY: as above.
        let workspace = unsafe { handle("workspace", workspace) }?;
        if !std::ptr::eq(*of, workspace.of) {
            return Err(Failure::misuse(format_args!(
                "the workspace is one of the chain `{}`, but `{}` is launched",
                workspace.of.chain().name,
                of.chain().name
            )));
        }
        // SAFETY: as above.
        let (stream, mut arguments) = unsafe { (workspace.stream(stream)?, workspace.arguments(args, count)?) };
        Ok(prepared.launch_on(&stream, arguments.list(), &mut workspace.space())?)
    })
}

/// Closes a prepared chain. Launches that are queued still run. Null is ignored.
///
/// # Safety
/// It came from `atlas_chain_prepare`, and is not used again, nor is a CUDA graph that recorded its launches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepared_chain_close(prepared: *mut AtlasPreparedChain) {
    if !prepared.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(prepared) });
    }
}
