//! Graphs on the CPU, where their launches run one by one: what they own, what they record, and what they refuse.

use crate::kernels::{BUMP, ROW_OF, SCALE, SUMS};
use atlas_dsl::DType;
use atlas_runtime::{Buckets, Chain, Device, Graph, Launch, LaunchError, Result, RuntimeError, Stream, Tensor, args};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static BOTH: Chain = Chain::new("both", &[&SUMS, &SCALE], &["s"]);

fn stream() -> Stream {
    Device::cpu().default_stream()
}

fn counter(len: usize) -> Tensor {
    Device::cpu().tensor_from(&vec![0_i32; len], [len]).unwrap()
}

fn values(t: &Tensor) -> Vec<i32> {
    t.to_vec().unwrap()
}

/// A graph that adds `by` to each element.
fn bumps(x: &mut Tensor, by: i32) -> Graph {
    BUMP.prepare(&Device::cpu(), args!(&mut *x, by)).unwrap();
    stream().capture(|recording| BUMP.launch_on(recording, args!(x, by))).unwrap()
}

fn code(result: Result<()>) -> String {
    result.map_or_else(|e| e.code().to_string(), |()| "no error".to_owned())
}

#[test]
fn a_graph_runs_what_was_recorded_and_recording_runs_nothing() {
    let cpu = Device::cpu();
    let (mut x, from) = (counter(3), cpu.tensor_from(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]).unwrap());
    let mut y = Tensor::zeros(&cpu, DType::F32, [1, 2]).unwrap();
    let prepared = BUMP.prepare(&cpu, args!(&mut x, 1)).unwrap();
    ROW_OF.prepare(&cpu, args!(from, 0, &mut y)).unwrap();
    let mut graph = stream()
        .capture(|recording| {
            BUMP.launch_on(recording, args!(&mut x, 1))?;
            prepared.launch_on(recording, args!(&mut x, 10))?;
            ROW_OF.launch_on(recording, args!(from, 1, &mut y))
        })
        .unwrap();
    assert_eq!((values(&x), y.to_vec::<f32>().unwrap()), (vec![0; 3], vec![0.0; 2]));
    assert_eq!(
        (graph.len(), graph.is_empty(), format!("{graph:?}")),
        (3, false, "Graph(3 launches on cpu)".to_owned())
    );
    for round in 1..=3 {
        graph.launch(&stream()).unwrap();
        assert_eq!((values(&x), y.to_vec::<f32>().unwrap()), (vec![11 * round; 3], vec![6.0, 8.0]));
    }
    // It reads what stands in its tensors now.
    let mut inputs = from;
    inputs.copy_from(&[0.0_f32, 0.0, 5.0, 7.0]).unwrap();
    graph.launch(&stream()).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [10.0, 14.0]);
}

/// Launches depend on their order: `s` of the chain is a workspace, and `y` is written twice.
#[test]
fn chains_are_recorded_with_their_workspaces() {
    let cpu = Device::cpu();
    let x = cpu.tensor_from(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap();
    let r = cpu.tensor_from(&[0.5_f32; 6], [2, 3]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [2, 3]).unwrap();
    let mut space = BOTH.workspace(&cpu, &[], &[("N", 2)]).unwrap();
    let refused = stream().capture(|recording| BOTH.launch_on(recording, args!(x, &mut y, r, 3.0), &mut space));
    assert_eq!(code(refused.map(drop)), "ATL656", "the chain is refused before its first kernel is recorded");
    BOTH.prepare(&cpu, args!(x, &mut y, r, 3.0), &mut space).unwrap();
    let mut graph =
        stream().capture(|recording| BOTH.launch_on(recording, args!(x, &mut y, r, 3.0), &mut space)).unwrap();
    let sums = space.tensors().next().unwrap().1.clone();
    drop(space);
    graph.launch(&stream()).unwrap();
    assert_eq!(sums.to_vec::<f32>().unwrap(), [6.0, 15.0]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.5, 6.5, 9.5, 12.5, 15.5, 18.5]);
}

#[test]
fn a_graph_keeps_its_tensors() {
    let cpu = Device::cpu();
    let (x, mut y) =
        (cpu.tensor_from(&[1.0_f32, 2.0], [1, 2]).unwrap(), Tensor::zeros(&cpu, DType::F32, [1, 2]).unwrap());
    ROW_OF.prepare(&cpu, args!(x, 0, &mut y)).unwrap();
    let before = cpu.tensor_bytes().0;
    let mut graph = stream().capture(|recording| ROW_OF.launch_on(recording, args!(x, 0, &mut y))).unwrap();
    let seen = y.clone();
    drop((x, y, cpu));
    graph.launch(&stream()).unwrap();
    assert_eq!(seen.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    // Nothing was allocated for it. Other tests of this process have tensors of the CPU, too, so no exact figure is asked for.
    assert!(before > 0);
}

/// Counts the owners that are gone.
struct Owner(Vec<f32>, Arc<AtomicUsize>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_graph_keeps_the_owners_of_foreign_memory() {
    let (cpu, gone) = (Device::cpu(), Arc::new(AtomicUsize::new(0)));
    let foreign = |values: Vec<f32>| {
        let mut owner = Owner(values, gone.clone());
        let address = owner.0.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the vector is the owner's, which touches it no more.
        unsafe { Tensor::from_foreign(&cpu, DType::F32, address, [1, 2], [2, 1], owner) }.unwrap()
    };
    let (x, mut y) = (foreign(vec![1.0, 2.0]), foreign(vec![0.0; 2]));
    ROW_OF.prepare(&cpu, args!(x, 0, &mut y)).unwrap();
    // Without a graph the owner goes with the tensor.
    drop(foreign(vec![0.0; 2]));
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    let mut graph = stream().capture(|recording| ROW_OF.launch_on(recording, args!(x, 0, &mut y))).unwrap();
    drop(x);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    graph.launch(&stream()).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    // An update lets go of what it replaces.
    let other = cpu.tensor_from(&[7.0_f32, 8.0], [1, 2]).unwrap();
    graph.update(|recording| ROW_OF.launch_on(recording, args!(other, 0, &mut y))).unwrap();
    assert_eq!(gone.load(Ordering::Relaxed), 2);
    drop(y);
    assert_eq!(gone.load(Ordering::Relaxed), 2);
    drop(graph);
    assert_eq!(gone.load(Ordering::Relaxed), 3);
}

#[test]
fn what_was_never_prepared_is_refused_and_nothing_records_afterwards() {
    let cpu = Device::cpu();
    // Sizes that no other test has.
    let mut x = counter(1213);
    let capture = |x: &mut Tensor| stream().capture(|recording| BUMP.launch_on(recording, args!(x, 1)));
    let error = capture(&mut x).map(drop).unwrap_err();
    let wanted = "error[ATL656]: `bump` was not prepared for these sizes, types and layouts, and recording a launch \
                  does not prepare it, on any device; call `prepare`, of the chain if one launches it, with these arguments before, or launch it once before the recording";
    assert_eq!(error.to_string(), wanted);
    // Wrong arguments are wrong first.
    let wrong = stream().capture(|recording| BUMP.launch_on(recording, args!(x)));
    assert_eq!(code(wrong.map(drop)), "ATL601");
    BUMP.launch(&cpu, args!(&mut x, 1)).unwrap();
    assert_eq!(values(&x)[1212], 1, "the launch ran: nothing records");
    // Now it has run once. In the closure itself it may be prepared, too.
    capture(&mut x).unwrap().launch(&stream()).unwrap();
    assert_eq!(values(&x)[1212], 2);
    let mut y = counter(1217);
    let both = stream().capture(|recording| {
        BUMP.prepare(&cpu, args!(&mut y, 1))?;
        BUMP.launch_on(recording, args!(&mut y, 1))
    });
    both.unwrap().launch(&stream()).unwrap();
    assert_eq!(values(&y)[0], 1);
}

#[test]
fn a_panic_ends_the_recording() {
    let (cpu, mut x) = (Device::cpu(), counter(4));
    BUMP.prepare(&cpu, args!(&mut x, 1)).unwrap();
    let mut kept = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream().capture(|recording| {
            kept = Some(recording.clone());
            BUMP.launch_on(recording, args!(&mut x, 1))?;
            panic!("as a test")
        })
    }));
    assert!(panicked.is_err());
    BUMP.launch(&cpu, args!(&mut x, 5)).unwrap();
    assert_eq!(values(&x), [5; 4]);
    let ended = BUMP.launch_on(&kept.unwrap(), args!(&mut x, 1)).unwrap_err();
    let wanted = "error[ATL658]: `bump` is launched on the stream of a recording, or of a block, that has ended; launch it \
                  on the stream that was captured, or that its own closure is given";
    assert_eq!(ended.to_string(), wanted);
    assert_eq!(values(&x), [5; 4]);
}

#[test]
fn a_recording_that_has_ended_is_said_of_launches_that_were_not_prepared_too() {
    let (mut x, mut kept) = (counter(1223), None);
    let keep = |recording: &Stream| {
        kept = Some(recording.clone());
        Ok(())
    };
    stream().capture(keep).unwrap();
    let recording = kept.unwrap();
    assert_eq!(code(BUMP.launch_on(&recording, args!(&mut x, 1))), "ATL658");
    // Wrong arguments are wrong first.
    assert_eq!(code(BUMP.launch_on(&recording, args!(&mut x))), "ATL601");
    let mut y = counter(1223);
    let beside = stream().capture(|_| BUMP.launch_on(&recording, args!(&mut y, 1)));
    assert_eq!(code(beside.map(drop)), "ATL658");
}

#[test]
fn launches_beside_the_recording() {
    let (cpu, mut x) = (Device::cpu(), counter(4));
    BUMP.prepare(&cpu, args!(&mut x, 1)).unwrap();
    // SAFETY: the CPU has no handles.
    let other = unsafe { Stream::from_raw(&cpu, std::ptr::null_mut()) };
    let refused = stream().capture(|_| BUMP.launch_on(&other, args!(&mut x, 1))).map(drop).unwrap_err();
    let wanted = "error[ATL657]: `bump` is launched on another stream while this thread records a graph, so the graph, or the \
                  block of `run_if` or `run_while` that is being recorded, would lack it; launch it on the stream that the innermost closure \
                  is given, or outside of that closure";
    assert_eq!(refused.to_string(), wanted);
    let mut graph = bumps(&mut x, 1);
    let refused = stream().capture(|_| graph.launch(&other)).map(drop);
    assert!(matches!(refused, Err(RuntimeError::Launch(LaunchError::NotRecorded { kernel: "bump" }))));
    // On the stream that was captured, and on the default one, as ops do that take no stream.
    for captured in [stream(), other] {
        let mut graph = captured
            .capture(|_| {
                BUMP.launch(&cpu, args!(&mut x, 1))?;
                BUMP.launch_on(&cpu.default_stream(), args!(&mut x, 1))
            })
            .unwrap();
        assert_eq!((graph.len(), values(&x)), (2, vec![0; 4]));
        graph.launch(&captured).unwrap();
        assert_eq!(values(&x), [2; 4]);
        x.copy_from(&[0; 4]).unwrap();
    }
    // Another thread records nothing, and may launch on the stream that does.
    let mut y = counter(4);
    let graph = stream().capture(|recording| {
        std::thread::scope(|scope| {
            scope.spawn(|| BUMP.launch(&cpu, args!(&mut x, 1)).unwrap());
            scope.spawn(|| BUMP.launch_on(recording, args!(&mut y, 1)).unwrap());
        });
        Ok(())
    });
    assert_eq!((graph.unwrap().len(), values(&x), values(&y)), (1, vec![1; 4], vec![0; 4]));
}

#[test]
fn an_update_takes_other_tensors_and_numbers() {
    let (mut x, mut y) = (counter(4), counter(4));
    let mut graph = bumps(&mut x, 1);
    graph.update(|recording| BUMP.launch_on(recording, args!(&mut y, 3))).unwrap();
    graph.launch(&stream()).unwrap();
    assert_eq!((values(&x), values(&y)), (vec![0; 4], vec![3; 4]));
    // One that fails changes nothing.
    let failed = graph.update(|recording| {
        BUMP.launch_on(recording, args!(&mut x, 100))?;
        BUMP.launch_on(recording, args!(&mut counter(1229), 1))
    });
    assert_eq!(code(failed), "ATL656");
    graph.launch(&stream()).unwrap();
    assert_eq!((values(&x), values(&y), graph.len()), (vec![0; 4], vec![6; 4], 1));
    // Other launches than before.
    graph.update(|recording| (0..3).try_for_each(|_| BUMP.launch_on(recording, args!(&mut x, 1)))).unwrap();
    graph.launch(&stream()).unwrap();
    assert_eq!((values(&x), graph.len()), (vec![3; 4], 3));
    graph.update(|_| Ok(())).unwrap();
    graph.launch(&stream()).unwrap();
    assert_eq!((values(&x), graph.is_empty()), (vec![3; 4], true));
}

#[test]
fn graphs_in_graphs() {
    let (mut x, mut y) = (counter(4), counter(4));
    let mut ones = bumps(&mut x, 1);
    let mut inner = None;
    let mut outer = stream()
        .capture(|recording| {
            ones.launch(recording)?;
            // Recordings nest: what the inner closure launches is not the outer one's.
            inner = Some(recording.capture(|recording| BUMP.launch_on(recording, args!(&mut y, 7)))?);
            ones.launch(&Device::cpu().default_stream())?;
            BUMP.launch_on(recording, args!(&mut x, 10))
        })
        .unwrap();
    drop(ones);
    assert_eq!((outer.len(), values(&x)), (3, vec![0; 4]));
    outer.launch(&stream()).unwrap();
    assert_eq!((values(&x), values(&y)), (vec![12; 4], vec![0; 4]));
    inner.unwrap().launch(&stream()).unwrap();
    assert_eq!(values(&y), [7; 4]);
}

#[test]
fn a_graph_moves_between_threads() {
    let mut x = counter(4);
    let mut graph = bumps(&mut x, 2);
    std::thread::spawn(move || graph.launch(&stream()).unwrap()).join().unwrap();
    assert_eq!(values(&x), [2; 4]);
}

#[test]
fn buckets_are_made_once_and_the_smallest_that_is_large_enough_serves() {
    struct Bucket {
        x: Tensor,
        graph: Graph,
    }
    let made = AtomicUsize::new(0);
    let make = |size: usize| {
        made.fetch_add(1, Ordering::Relaxed);
        let mut x = counter(size);
        let graph = bumps(&mut x, 1);
        Ok(Bucket { x, graph })
    };
    let mut buckets = Buckets::new([16, 4, 64, 16]);
    assert_eq!(buckets.sizes().collect::<Vec<_>>(), [4, 16, 64]);
    for (size, bucket, so_far) in [(5, 16, 1), (16, 16, 1), (1, 4, 2), (0, 4, 2), (7, 16, 2), (64, 64, 3)] {
        let found = buckets.get(size, make).unwrap();
        assert_eq!((found.x.len(), made.load(Ordering::Relaxed)), (bucket, so_far), "{size}");
        // The first `size` elements are the caller's.
        let mut mine = found.x.slice(0, 0..size).unwrap();
        mine.copy_from(&(0..size as i32).collect::<Vec<_>>()).unwrap();
        found.graph.launch(&stream()).unwrap();
        assert_eq!(values(&mine), (1..=size as i32).collect::<Vec<_>>());
    }
    let error = buckets.get(65, make).map(drop).unwrap_err();
    let wanted = "error[ATL659]: no bucket holds size 65: there are [4, 16, 64]; add a larger one, or launch this size without a graph";
    assert_eq!(error.to_string(), wanted);
    // What cannot be made is made next time.
    let mut one: Buckets<usize> = Buckets::new([8]);
    let fails = || Err(LaunchError::RecordedUnprepared { kernel: "bump" }.into());
    assert_eq!(code(one.get(3, |_| fails()).map(drop)), "ATL656");
    assert_eq!(one.get(3, Ok).unwrap(), &8);
}

#[cfg(feature = "sim")]
mod simulated {
    use crate::kernels::{BUMP, SCALE};
    use crate::ptx::{PTX, counted, image, with_kernel};
    use crate::split;
    use atlas_codegen::KernelImage;
    use atlas_dsl::DType;
    use atlas_runtime::{CacheDir, Device, Launch, SimOptions, Target, Tensor, args};
    use tempfile::TempDir;

    fn simulator(sm: u32, specific: bool, image: impl Fn(&Device) -> KernelImage) -> (TempDir, Device) {
        let (folder, target) = (TempDir::new().unwrap(), Target { sm, specific });
        let cache = CacheDir::At(folder.path().to_owned());
        let device = Device::sim_with(target, SimOptions::default(), cache.clone());
        let device = with_kernel(device, cache, image, |d| counted(d, 37));
        (folder, device)
    }

    #[test]
    fn graphs_of_a_simulator() {
        for split in [false, true] {
            let (_folder, device) = match split {
                false => simulator(80, false, |d| image(d, PTX, 0)),
                true => simulator(90, true, |d| split::image(d, split::PTX)),
            };
            let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
            let stream = device.default_stream();
            let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
            let mut host = Device::cpu().tensor_from(&[0_i32; 4], [4]).unwrap();
            let mut graph = stream
                .capture(|recording| {
                    // Another device records nothing.
                    BUMP.launch(&Device::cpu(), args!(&mut host, 1))?;
                    SCALE.launch_on(recording, args!(x, x, 9.0, &mut y))?;
                    prepared.launch_on(recording, args!(x, x, 2.0, &mut y))
                })
                .unwrap();
            assert_eq!(host.to_vec::<i32>().unwrap(), [1; 4]);
            assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 37 * 8]);
            let before = device.stats().launches;
            drop((prepared, x, stream));
            graph.launch(&device.default_stream()).unwrap();
            assert_eq!(y.to_vec::<f32>().unwrap(), split::scaled(37, 2.0));
            assert_eq!(device.stats().launches, before + 2);
            // It is of one device.
            let wrong = graph.launch(&Device::cpu().default_stream()).unwrap_err();
            assert_eq!(wrong.code().to_string(), "ATL614");
            drop(device);
            graph.launch(&graph.device().default_stream()).unwrap();
        }
    }

    #[test]
    fn a_fault_of_a_launch_is_the_error_of_the_graph() {
        let beyond = PTX.replace("st.global.f32 [%l6], %f3", "st.global.f32 [%l6+4096], %f3");
        let (_folder, device) = simulator(80, false, |d| image(d, &beyond, 0));
        let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
        SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
        let stream = device.default_stream();
        let mut graph = stream.capture(|recording| SCALE.launch_on(recording, args!(x, x, 2.0, &mut y))).unwrap();
        assert_eq!(graph.launch(&stream).unwrap_err().code().to_string(), "ATL627");
    }

    /// Enough other kernels evict the one of the graph, which has it still.
    #[test]
    fn the_kernel_of_a_graph_outlives_its_eviction() {
        let (folder, device) = simulator(80, false, |d| image(d, PTX, 0));
        crate::gpu_graphs::check_eviction(&CacheDir::At(folder.path().to_owned()), &device);
    }
}

#[test]
fn a_stream_says_that_it_records() {
    let stream = Device::cpu().default_stream();
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let graph = stream.capture(|recording| {
            assert!(recording.is_recording()? && !stream.is_recording()?);
            assert_eq!(recording.clone().recording()?, recording.recording()?);
            numbers.push(recording.recording()?.unwrap());
            Ok(())
        });
        assert!(graph.unwrap().is_empty());
    }
    assert_ne!(numbers[0], numbers[1]);
    assert!(!stream.is_recording().unwrap());
    assert_eq!(stream.recording().unwrap(), None);
}
