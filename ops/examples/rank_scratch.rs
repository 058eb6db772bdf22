use atlas_codegen::Target;
use atlas_ops::cases;
use atlas_runtime::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let t = std::time::Instant::now();
    let dims: Vec<u64> = args[2].split(',').map(|x| x.parse().unwrap()).collect();
    let sm: u32 = args.get(3).map_or(90, |x| x.parse().unwrap());
    let p = cases::problem(&args[1], atlas_dsl::DType::Bf16, &dims).unwrap();
    let mut pr = p.clone();
    let _ = &mut pr;
    let spec = p.specialization();
    let t1 = std::time::Instant::now();
    let s = choose_for(p.kernel, &spec, &p.dims, Machine { target: Some(Target { sm, specific: false }), sms: if sm==90 {132} else {108} });
    eprintln!("select {:?} total {:?}", t1.elapsed(), t.elapsed());
    print!("{s}");
}
