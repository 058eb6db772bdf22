//! Lane-instructions per second with race detection: pure arithmetic, a copy through shared memory, a matrix product.

use atlas_sim::alu::Arithmetic;
use atlas_sim::fault::Fault;
use atlas_sim::launch::{Launch, Options, run};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::{decode, syntax};
use criterion::{Criterion, Throughput};
use std::time::Duration;

/// A launch of CTAs in one row, with buffers of floats and then 32-bit scalars as parameters.
struct Case {
    name: &'static str,
    text: String,
    grid: u32,
    block: u32,
    shared: u32,
    /// Elements of each buffer; the last may be written.
    buffers: Vec<usize>,
    scalars: Vec<u32>,
}

fn kernel(buffers: usize, body: &str) -> String {
    let params: Vec<String> = (0..buffers).map(|i| format!(".param .u64 p{i}")).collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({})\n{{\n.reg .pred %p<4>;\n\
         .reg .b32 %r<40>;\n.reg .b64 %d<40>;\n.reg .f32 %f<40>;\n.shared .align 16 .b8 s[2048];\n{body}\n}}\n",
        params.join(", ")
    )
}

/// Multiplications, additions and logic in a loop of 12 instructions.
fn arithmetic() -> Case {
    let body = "
        mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.f32 %f1, 0f3f800000; mov.f32 %f2, 0f00000000;
        L: fma.rn.f32 %f2, %f2, %f1, %f1; mul.f32 %f3, %f2, %f1; add.f32 %f4, %f3, %f2;
        mad.lo.u32 %r3, %r2, %r1, %r1; xor.b32 %r4, %r3, %r2; shl.b32 %r5, %r4, 3;
        add.u32 %r1, %r5, 1; cvt.rn.f32.u32 %f5, %r1; max.f32 %f1, %f5, %f1;
        add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 256; @%p1 bra L; ret;";
    let text = kernel(0, body);
    Case { name: "arithmetic", text, grid: 4, block: 128, shared: 0, buffers: vec![], scalars: vec![] }
}

/// Copies 16 bytes per lane from global to shared memory and back to global memory, 64 times, with nothing else in the loop.
fn copy() -> Case {
    let body = "
        ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 8192, %r1;
        mul.wide.u32 %d3, %r3, 16; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
        mov.u32 %r4, s; mad.lo.u32 %r4, %r1, 16, %r4; mov.u32 %r5, 0;
        L: ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1]; st.shared.v4.f32 [%r4], {%f1, %f2, %f3, %f4};
        ld.shared.v4.f32 {%f5, %f6, %f7, %f8}, [%r4]; st.global.v4.f32 [%d2], {%f5, %f6, %f7, %f8};
        add.u64 %d1, %d1, 2048; add.u64 %d2, %d2, 2048; add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r5, 64; @%p1 bra L; ret;";
    let elements = 4 * 8192 * 4;
    let text = kernel(2, body);
    Case { name: "copy", text, grid: 4, block: 128, shared: 0, buffers: vec![elements; 2], scalars: vec![] }
}

/// The product of two matrices of 128 x 128 as Atlas compiles it, with loads through a pipeline of `cp.async`.
fn product() -> Case {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../snapshots/ptx/sm_80/gemm_tf32.snap");
    let snapshot = std::fs::read_to_string(path).expect("a snapshot");
    let text = snapshot.splitn(3, "---\n").nth(2).expect("the PTX of a snapshot").to_owned();
    let scalars = vec![128; 6];
    Case { name: "gemm_tf32", text, grid: 16, block: 128, shared: 8192, buffers: vec![128 * 128; 3], scalars }
}

/// A case with its memory filled and its parameters packed.
struct Ready<'a> {
    case: &'a Case,
    program: Program,
    memory: Global,
    params: Vec<u8>,
}

impl Ready<'_> {
    fn new(case: &Case) -> Result<Ready<'_>, Fault> {
        let program = decode::compile(&syntax::parse(&case.text)?, None, Arithmetic::Ieee)?;
        let mut memory = Global::new();
        let fill = |elements| (0..elements).flat_map(|i| ((i % 7) as f32).to_le_bytes()).collect();
        let buffers = case.buffers.iter().map(|&elements| memory.alloc(fill(elements), Permission::ReadWrite));
        let values: Vec<u64> = buffers.chain(case.scalars.iter().map(|&s| u64::from(s))).collect();
        let mut params = vec![0; program.param_bytes as usize];
        for (slot, value) in program.params.iter().zip(&values) {
            let to = params.iter_mut().skip(slot.offset as usize).take(slot.bytes as usize);
            to.zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        Ok(Ready { case, program, memory, params })
    }

    /// Runs the case: its lane-instructions.
    fn run(&mut self) -> Result<u64, Fault> {
        let Ready { case, program, memory, params } = self;
        memory.begin_launch(&[]);
        let launch = Launch {
            program,
            grid: [case.grid, 1, 1],
            block: [case.block, 1, 1],
            cluster: None,
            shared_bytes: case.shared,
            params,
        };
        run(&launch, memory, &Options::default()).map(|report| report.lane_instructions)
    }
}

fn main() -> Result<(), Fault> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("lane-instructions");
    for case in [arithmetic(), copy(), product()] {
        let mut ready = Ready::new(&case)?;
        group.throughput(Throughput::Elements(ready.run()?));
        group.bench_function(case.name, |b| b.iter(|| ready.run()));
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
