//! scratch
use atlas_codegen::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let src = std::fs::read_to_string(&a[1]).unwrap();
    let k = atlas_dsl::parse_kernel(&src).map_err(|e| e.to_string()).unwrap();
    let k = atlas_dsl::verify(k).map_err(|e| e.to_string()).unwrap();
    let s: atlas_dsl::Config = a[2].parse().unwrap();
    let t: Target = a[3].parse().unwrap();
    let mut last = String::new();
    let r = atlas_codegen::pipeline::run(&k, &s.schedule, t, |p, g| {
        last = format!("// after {p}: {}\n{g}", atlas_codegen::analysis::peak_registers(g));
    });
    std::fs::write("/tmp/out.Last", &last).unwrap();
    if let Err(e) = r {
        println!("{e}");
        return;
    }
    let out = compile_stages(&k, &s.schedule, t, &[Stage::Gpu, Stage::Llvm, Stage::Ptx]);
    match out {
        Err(e) => {
            println!("{e}");
            std::process::exit(1)
        }
        Ok(o) => {
            for (s, t) in o {
                std::fs::write(format!("/tmp/out.{:?}", s), t).unwrap();
            }
        }
    }
}
