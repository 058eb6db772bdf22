//! Attributes on parts of kernels, which would be checked and counted whatever a `cfg` leaves out.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn f(x) {
        #[cfg(any())]
        let x = x * 2.0;
        x
    }

    #[cfg(not(any()))]
    pub kernel k(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    require { #[cfg(any())] N % 2 == 0 }
    {
        for n in grid(tiles(N, BN)) {
            /// What is stored.
            let mut a = f(load(x[n]));
            #[cfg(any())]
            for _ in 0..3 { a += 1.0; }
            #[cfg(any())] a *= 2.0;
            #[allow(unused)]
            store(y[n], a);
            #[cfg_attr(all(), cfg(any()))]
            store(y[n], a + #[cfg(any())] 2.0);
        }
    }
}

macro_rules! given {
    ($(#[$m:meta])*: $s:stmt) => {
        atlas_kernel! {
            pub kernel by_statement(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
                for n in grid(tiles(N, 64)) { store(y[n], load(x[n])); $(#[$m])* $s; }
            }
        }
    };
}
given!(#[cfg(any())]: store(y[n], 0.0));

fn main() {}
