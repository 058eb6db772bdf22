//! Launches of a graph that run as a number in memory says. On the CPU the host reads the numbers; on a GPU these are conditional nodes.

use crate::kernels::BUMP;
use atlas_dsl::DType;
use atlas_runtime::{Device, Graph, HostState, Launch, Result, Stream, Tensor, args};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tests for a device, which run on the CPU, and on a GPU if they are asked for.
macro_rules! on_devices {
    ($($name:ident)*) => {
        mod cpu {
            $(#[test]
            fn $name() {
                super::$name(&super::Device::cpu());
            })*
        }
        #[cfg(feature = "jit")]
        mod gpu {
            $(#[test]
            #[ignore = "needs a GPU"]
            fn $name() {
                super::$name(&super::Device::cuda(0).unwrap());
            })*
        }
    };
}

on_devices! {
    a_block_runs_if_its_number_says_so
    blocks_repeat_and_lie_in_blocks
    graphs_with_conditions_are_launched_in_others_and_updated
    conditions_that_are_none_are_refused
    launches_beside_the_block_are_refused
    a_block_that_fails_leaves_the_recording_around_it
    blocks_leave_the_state_of_the_host
    blocks_of_nothing_are_left_out
    updates_replace_blocks
}

/// One number, for which `BUMP` is prepared.
fn number(device: &Device, value: i32) -> Tensor {
    let mut x = device.tensor_from(&[value], [1]).unwrap();
    BUMP.prepare(device, args!(&mut x, 1)).unwrap();
    x
}

fn value(x: &Tensor) -> i32 {
    x.to_vec::<i32>().unwrap()[0]
}

fn bump(on: &Stream, x: &Tensor, by: i32) -> Result<()> {
    BUMP.launch_on(on, args!(&mut x.clone(), by))
}

fn code(result: Result<Graph>) -> String {
    result.map_or_else(|e| e.code().to_string(), |_| "no error".to_owned())
}

fn a_block_runs_if_its_number_says_so(device: &Device) {
    let stream = device.default_stream();
    let (mut flag, x) = (number(device, 0), number(device, 0));
    let mut graph = stream
        .capture(|recording| {
            bump(recording, &x, 1)?;
            recording.run_if(&flag, |then| bump(then, &x, 10))?;
            bump(recording, &x, 100)
        })
        .unwrap();
    assert_eq!((value(&x), graph.len(), graph.tensors().count()), (0, 3, 4));
    graph.launch(&stream).unwrap();
    assert_eq!(value(&x), 101);
    for yes in [1, -1, i32::MIN] {
        let before = value(&x);
        flag.copy_from(&[yes]).unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!(value(&x) - before, 111);
    }
}

/// The sum of the first numbers below `n`, by a loop in a loop, and a condition in that.
fn blocks_repeat_and_lie_in_blocks(device: &Device) {
    let stream = device.default_stream();
    let (n, k, total, zero) = (number(device, 0), number(device, 0), number(device, 0), number(device, 0));
    let mut graph = stream
        .capture(|recording| {
            recording.run_while(&n, |outer| {
                bump(outer, &n, -1)?;
                bump(outer, &k, 3)?;
                outer.run_while(&k, |inner| {
                    bump(inner, &k, -1)?;
                    inner.run_if(&k, |then| bump(then, &total, 1))?;
                    inner.run_if(&zero, |never| bump(never, &total, 1000))
                })
            })
        })
        .unwrap();
    for count in [0, 1, 5] {
        n.clone().copy_from(&[count]).unwrap();
        total.clone().copy_from(&[0]).unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!((value(&n), value(&k), value(&total)), (0, 0, 2 * count));
    }
}

fn graphs_with_conditions_are_launched_in_others_and_updated(device: &Device) {
    let stream = device.default_stream();
    let (n, x) = (number(device, 3), number(device, 0));
    let mut counts = stream.capture(|r| {
        r.run_while(&n, |again| {
            bump(again, &n, -1)?;
            bump(again, &x, 1)
        })
    });
    let counts = counts.as_mut().unwrap();
    let mut twice = stream
        .capture(|recording| {
            counts.launch(recording)?;
            bump(recording, &n, 4)?;
            counts.launch(recording)
        })
        .unwrap();
    assert_eq!(twice.len(), 5);
    twice.launch(&stream).unwrap();
    assert_eq!((value(&n), value(&x)), (0, 7));
    twice.update(|recording| recording.run_if(&x, |then| bump(then, &x, -7))).unwrap();
    twice.launch(&stream).unwrap();
    twice.launch(&stream).unwrap();
    assert_eq!(value(&x), 0);
}

fn conditions_that_are_none_are_refused(device: &Device) {
    let stream = device.default_stream();
    let x = number(device, 0);
    let one = |condition: &Tensor| code(stream.capture(|r| r.run_if(condition, |then| bump(then, &x, 1))));
    assert_eq!(one(&x), "no error");
    assert_eq!(one(&Tensor::zeros(device, DType::F32, [1]).unwrap()), "ATL662");
    assert_eq!(one(&Tensor::zeros(device, DType::I32, [2]).unwrap()), "ATL662");
    assert_eq!(one(&Tensor::zeros(device, DType::I32, [0]).unwrap()), "ATL662");
    assert_eq!(one(&Tensor::zeros(device, DType::I32, [1, 1, 1]).unwrap()), "no error");
    // A loop that nothing ends. A view of the same memory ends one.
    let n = number(device, 1);
    assert_eq!(code(stream.capture(|r| r.run_while(&n, |again| bump(again, &x, 1)))), "ATL664");
    let view = n.slice(0, 0..1).unwrap();
    assert_eq!(code(stream.capture(|r| r.run_while(&view, |again| bump(again, &n, -1)))), "no error");
    // Outside of a recording.
    assert_eq!(stream.run_if(&x, |_| Ok(())).unwrap_err().code().to_string(), "ATL661");
    assert_eq!(value(&x), 0);
}

/// What is launched on the stream around a block while the block is recorded would run wherever the block does not.
fn launches_beside_the_block_are_refused(device: &Device) {
    let stream = device.default_stream();
    let x = number(device, 1);
    let beside = stream.capture(|recording| recording.run_while(&x, |_| bump(recording, &x, -1)));
    assert_eq!(code(beside), "ATL657");
    // On the default stream they belong to the block.
    let mut graph = stream.capture(|recording| recording.run_while(&x, |_| bump(&stream, &x, -1))).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!((value(&x), graph.len()), (0, 1));
    // The stream of a block ends with it.
    let mut kept = None;
    let late = stream.capture(|recording| {
        recording.run_if(&x, |then| {
            kept = Some(then.clone());
            Ok(())
        })?;
        bump(kept.as_ref().unwrap(), &x, 1)
    });
    assert_eq!(code(late), "ATL658");
}

fn a_block_that_fails_leaves_the_recording_around_it(device: &Device) {
    let stream = device.default_stream();
    let (x, other) = (number(device, 1), device.tensor_from(&[1, 2], [2]).unwrap());
    let mut graph = stream
        .capture(|recording| {
            // Not prepared for two numbers.
            assert!(recording.run_if(&x, |then| bump(then, &other, 1)).is_err());
            let panics = || recording.run_if(&x, |_| panic!("on purpose"));
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            bump(recording, &x, 1)
        })
        .unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!((value(&x), graph.len()), (2, 1));
}

/// A block may run any number of times, none included, so it leaves state on the host as it was.
fn blocks_leave_the_state_of_the_host(device: &Device) {
    let stream = device.default_stream();
    let (x, place) = (number(device, 1), HostState::new(0));
    let moves = |to: &[i32]| {
        let found = code(stream.capture(|r| {
            r.run_if(&x, |then| {
                to.iter().for_each(|&to| place.set(device, "op", to));
                bump(then, &x, 1)
            })
        }));
        (found, place.get())
    };
    assert_eq!(moves(&[1, 0]), ("no error".to_owned(), 0));
    assert_eq!(moves(&[1]), ("ATL660".to_owned(), 0));
    // A start does not help: without the block, what follows would go on elsewhere.
    let starts = stream.capture(|r| {
        r.run_if(&x, |then| {
            place.restart(device, "op", 5);
            bump(then, &x, 1)
        })
    });
    assert_eq!((code(starts), place.get()), ("ATL660".to_owned(), 0));
    // Nor does a graph of its own in the block, which moved it.
    let inner = stream.capture(|r| {
        r.run_if(&x, |then| {
            let mut inner = then.capture(|own| {
                place.restart(device, "op", 5);
                bump(own, &x, 1)
            })?;
            inner.launch(then)
        })
    });
    assert_eq!((code(inner), place.get()), ("ATL660".to_owned(), 0));
    // What fails around a graph of its own takes back what that moved.
    let other = device.tensor_from(&[1, 2, 3], [3]).unwrap();
    let around = stream.capture(|r| {
        r.capture(|own| {
            place.restart(device, "op", 5);
            bump(own, &x, 1)
        })?;
        bump(r, &other, 1)
    });
    assert_eq!((code(around), place.get()), ("ATL656".to_owned(), 0));
}

fn blocks_of_nothing_are_left_out(device: &Device) {
    let stream = device.default_stream();
    let x = number(device, 1);
    let mut graph = stream
        .capture(|recording| {
            recording.run_while(&x, |_| Ok(()))?;
            recording.run_if(&x, |then| then.run_while(&x, |_| Ok(())))?;
            bump(recording, &x, 1)
        })
        .unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!((value(&x), graph.len()), (2, 1));
}

/// Blocks alike are updated in place, others are made anew.
fn updates_replace_blocks(device: &Device) {
    let stream = device.default_stream();
    let (x, y, n) = (number(device, 0), number(device, 0), number(device, 3));
    let down = |on: &Stream, of: &Tensor| {
        bump(on, &n, -1)?;
        bump(on, of, 1)
    };
    let mut graph = stream.capture(|r| r.run_while(&n, |again| down(again, &x))).unwrap();
    graph.launch(&stream).unwrap();
    graph.update(|r| r.run_while(&n, |again| down(again, &y))).unwrap();
    for count in [2, 4] {
        n.clone().copy_from(&[count]).unwrap();
        graph.launch(&stream).unwrap();
    }
    assert_eq!((value(&x), value(&y)), (3, 6));
    graph.update(|r| r.run_if(&y, |then| down(then, &x))).unwrap();
    graph.launch(&stream).unwrap();
    graph.update(|r| bump(r, &y, 10)).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!((value(&x), value(&y), value(&n)), (4, 16, -1));
}
